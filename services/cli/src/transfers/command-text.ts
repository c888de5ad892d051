const plainArgument = /^[\w@%+=:,./-]+$/;
/** They begin anew, so that a command with them would not go on. */
const flagsThatBegin = ['--restart'];

/** The command with which this one goes on, as a shell takes it; no argument is a key. */
export function resumingCommand(args: readonly string[] = process.argv.slice(2)): string {
  const words = args.filter((argument) => !flagsThatBegin.includes(argument)).map(quoted);
  return ['granary', ...words].join(' ');
}

const quoted = (argument: string): string =>
  plainArgument.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`;
