import { parseArgs, type ParseArgsConfig } from 'node:util';
import type { Environment } from '@granary/shared/config';
import type { Say } from './progress';
import type { ServeObjects } from './served-objects';

/** The surroundings of the program, which tests and scripts decide. */
export interface Surroundings {
  /** Settings; the options of a command take precedence. */
  environment: Environment;
  /** Relative paths among the arguments refer to this directory. */
  directory: string;
  /** Opens the objects of a data directory that keeps them in MinIO; absent where `deploy/stack` is not installed. */
  serveObjects?: ServeObjects | undefined;
}

export interface CommandContext extends Surroundings {
  say: Say;
  /** Aborted when a signal asks the program to end, for a command that ends in order. */
  signal: AbortSignal;
}

type Options = NonNullable<ParseArgsConfig['options']>;

type ValuesOf<O extends Options> = ReturnType<typeof parseArgs<{ options: O; allowPositionals: true }>>['values'];

export interface CommandDefinition<O extends Options> {
  /** The text of `--help`. */
  usage: string;
  /** The options, as `parseArgs` of Node describes them. */
  options: O;
  /** The settings that options stand for, by the names of the options. */
  settings?: { readonly [name in Extract<keyof O, string>]?: string };
  /** How many arguments without a name there may be; default: none. */
  positionalsMax?: number;
  /** The setting that the first of them stands for, if it stands for one. */
  positionalSetting?: string;
  /** Begins the sentence about a failure, such as `The backup`; default: the error speaks for itself. */
  title?: string;
  /** Whether a signal aborts `context.signal` and lets the work clean up; otherwise it ends the process at once. */
  endsInOrder?: boolean;
  /** Does the work, and returns 1 if the process is to end with 1 after it. */
  run: (values: ValuesOf<O>, positionals: readonly string[], context: CommandContext) => Promise<void | 0 | 1>;
}

/** A command of `granary-operator`; runs with its arguments, and returns the exit code of the process. */
export type Command = (args: readonly string[], surroundings: Surroundings) => Promise<number>;

/** Makes a command that parses its arguments, and says errors as sentences. */
export function defineCommand<const O extends Options>(definition: CommandDefinition<O>): Command {
  const { usage, settings = {}, positionalSetting, title, endsInOrder = false, run } = definition;
  return async (args, surroundings) => {
    const ending = new AbortController();
    const signals = endsInOrder ? (['SIGINT', 'SIGTERM', 'SIGHUP'] as const) : [];
    for (const name of signals) process.on(name, () => ending.abort());
    try {
      const parsed = parse(definition, args);
      if (parsed === undefined) {
        console.log(usage);
        return 0;
      }
      const environment = { ...surroundings.environment, ...settingsOf(settings, positionalSetting, parsed) };
      const say: Say = (line) => console.log(line);
      const context: CommandContext = { ...surroundings, environment, say, signal: ending.signal };
      return (await run(parsed.values as ValuesOf<O>, parsed.positionals, context)) ?? 0;
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      if (ending.signal.aborted)
        console.error(`${title ?? 'The command'} was interrupted. Partial results are removed.`);
      else console.error(title === undefined ? message : `${title} failed: ${message}`);
      return 1;
    }
  };
}

interface Arguments {
  values: Readonly<Record<string, string | boolean | undefined>>;
  positionals: string[];
}

/** Undefined if the help is asked for. Throws an Error that names a wrong argument. */
function parse(
  { usage, options, positionalsMax = 0 }: Pick<CommandDefinition<Options>, 'usage' | 'options' | 'positionalsMax'>,
  args: readonly string[],
): Arguments | undefined {
  if (args.some((arg) => arg === '--help' || arg === '-h')) return undefined;
  const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true });
  const surplus = positionals[positionalsMax];
  if (surplus !== undefined) throw new Error(`${surplus} is not expected.\n\n${usage}`);
  const empty = Object.entries(values).find(([, value]) => value === '');
  if (empty !== undefined) throw new Error(`--${empty[0]} needs a value.`);
  return { values: values as Arguments['values'], positionals };
}

/** The settings that are among the arguments. */
function settingsOf(
  settings: Readonly<Record<string, string | undefined>>,
  positionalSetting: string | undefined,
  { values, positionals }: Arguments,
): Record<string, string> {
  const pairs = Object.entries(values).map(([option, value]) => [settings[option], value] as const);
  const chosen = [...pairs, [positionalSetting, positionals[0]] as const].flatMap(([name, value]) =>
    name === undefined || value === undefined ? [] : [[name, String(value)] as const],
  );
  return Object.fromEntries(chosen);
}
