import { commands } from './commands';
import type { Surroundings } from './program/command';

const usage = `granary-operator <command> [options]

${Object.entries(commands)
  .map(([name, { summary }]) => `  ${name.padEnd(14)} ${summary}`)
  .join('\n')}

granary-operator <command> --help explains a command.`;

/** Runs the command that the arguments begin with, and sets the exit code of the process: 2 if there is none. */
export async function runOperator(args: readonly string[], surroundings: Surroundings): Promise<void> {
  const [name = '--help', ...others] = args;
  if (name === '--help' || name === '-h') return console.log(usage);
  const listed = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (listed === undefined) {
    console.error(`There is no command ${name}.\n\n${usage}`);
    process.exitCode = 2;
    return;
  }
  const command = await listed.load();
  process.exitCode = await command(others, surroundings);
}
