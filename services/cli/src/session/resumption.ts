/** Characters that no shell gives a meaning. */
const plainWord = /^[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+:,./=-]*$/;

const shellWord = (word: string): string => (plainWord.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/**
 * The command line that goes on where this one ended: the same words, with these options set to other values. `words`
 * are those of `process.argv` behind the program; keys are never among them.
 */
export function resumption(words: readonly string[], options: Record<string, string>): string {
  const kept = Object.keys(options).reduce<readonly string[]>(withoutOption, words);
  const end = kept.indexOf('--');
  return commandLine(kept.toSpliced(end < 0 ? kept.length : end, 0, ...Object.entries(options).flat()));
}

const commandLine = (words: readonly string[]): string => ['granary', ...words].map(shellWord).join(' ');

/** Options that begin anew, so that a command with them would not go on. */
const restarting = ['--restart'];

/** The command line by which a transfer goes on: the same one, which finds its state in a file. */
export const resumingCommand = (words: readonly string[] = process.argv.slice(2)): string =>
  commandLine(words.filter((word) => !restarting.includes(word)));

/** The words without an option that takes a value. Behind `--` there are no options. */
export function withoutOption(words: readonly string[], option: string): string[] {
  const kept: string[] = [];
  for (let index = 0; index < words.length; index += 1) {
    const word = words[index]!;
    if (word === '--') return [...kept, ...words.slice(index)];
    if (word === option) index += 1;
    else if (!word.startsWith(`${option}=`)) kept.push(word);
  }
  return kept;
}
