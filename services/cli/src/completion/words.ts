import type { Argument, Command, Option } from 'commander';

/** Names of things that are there, which somebody has to ask for. */
export type NameKind = 'app' | 'collection' | 'index' | 'profile' | 'query' | 'view';

/** How a line may go on: with one of these words, or with a name of this kind; else with a file. */
export interface Continuation {
  words: string[];
  names?: NameKind | undefined;
  /** The options that the line has already, by their attribute names. */
  options: Record<string, string>;
  /** The arguments before the word that is completed. */
  args: string[];
}

const nameKinds: readonly string[] = ['app', 'collection', 'index', 'profile', 'query', 'view'] satisfies NameKind[];

const kindOf = (name: string): NameKind | undefined => (nameKinds.includes(name) ? (name as NameKind) : undefined);

/** How the line of these words, the last of which is being typed, may go on. */
export function continuationOf(program: Command, words: readonly string[]): Continuation {
  const typed = words.at(-1) ?? '';
  const { command, args, options, valueOf } = readLine(program, words.slice(0, -1));
  const beginning = (candidates: readonly string[]) => candidates.filter((word) => word.startsWith(typed));
  const state = { options, args };
  if (valueOf) {
    return { ...state, words: beginning(valueOf.argChoices ?? []), names: kindOf(valueOf.attributeName()) };
  }
  if (typed.startsWith('-')) return { ...state, words: beginning(flagsOf(command)) };
  if (command.commands.length > 0) {
    const names = command
      .createHelp()
      .visibleCommands(command)
      .map((each) => each.name());
    return { ...state, words: beginning(names) };
  }
  const argument = argumentFor(command.registeredArguments, args.length);
  return { ...state, words: beginning(argument?.argChoices ?? []), names: argument && kindOf(argument.name()) };
}

/** A line as far as it goes: its command, what that has got, and the option whose value is being typed. */
function readLine(program: Command, words: readonly string[]) {
  let command = program;
  let valueOf: Option | undefined;
  const args: string[] = [];
  const options: Record<string, string> = {};
  for (const word of words) {
    const option = word.startsWith('-') ? optionOf(command, word) : undefined;
    const below = command.commands.find((each) => each.name() === word || each.aliases().includes(word));
    if (valueOf) {
      options[valueOf.attributeName()] = word;
      valueOf = undefined;
    } else if (word.startsWith('-')) {
      if (option && takesValue(option) && !word.includes('=')) valueOf = option;
      else if (option) options[option.attributeName()] = word.slice(word.indexOf('=') + 1);
    } else if (below && args.length === 0) command = below;
    else args.push(word);
  }
  return { command, args, options, valueOf };
}

const takesValue = (option: Option): boolean => option.required || option.optional;

/** The options of a command and of those above it. */
function optionsOf(command: Command): Option[] {
  return [...command.options, ...(command.parent ? optionsOf(command.parent) : [])].filter(({ hidden }) => !hidden);
}

function optionOf(command: Command, word: string): Option | undefined {
  const [flag] = word.split('=');
  return optionsOf(command).find(({ long, short }) => flag === long || flag === short);
}

const flagsOf = (command: Command): string[] => [
  ...new Set([...optionsOf(command).flatMap(({ long }) => (long ? [long] : [])), '--help']),
];

/** The last argument may take all words that are left. */
function argumentFor(all: readonly Argument[], index: number): Argument | undefined {
  const last = all.at(-1);
  return all[index] ?? (last?.variadic ? last : undefined);
}
