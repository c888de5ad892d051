import type { z } from 'zod';
import type { CancelSignal } from '../concurrency/cancellation';
import { logLevelOf, readConfig, type Environment } from '../config';
import { endWithError, interruptedBySignal, runUntilSignalled, type Running } from './lifecycle';
import { createLogger, type Logger } from '../logger';
import { StartError } from '../start-error';
import { runMigrations } from './migrate-command';
import type { Schema } from './schema';
import { misspeltName } from './setting-names';

/** How long a start that is interrupted may take to end; a migration that is cut off leaves nothing behind. */
const interruptedStartMs = 1_000;

/** The commands of the program of a service, by the argument that runs them in place of the service. */
export type Commands = Readonly<Record<string, (environment: Environment, log: Logger) => Promise<void>>>;

/**
 * The body of the `main.ts` of a service: reads its configuration, starts it, runs until a signal or a failure. With a
 * schema the program also has the command `migrate`.
 */
export async function runService<S extends z.ZodObject>(
  name: string,
  schema: S,
  environment: Environment,
  start: (config: Readonly<z.infer<S>>, overrides: { log: Logger; interrupted: CancelSignal }) => Promise<Running>,
  database?: Schema,
  commands: Commands = {},
): Promise<void> {
  const log = createLogger(name, logLevelOf(environment, 'info'));
  if (process.argv.length > 2) {
    const migrate =
      database && (() => runMigrations(name, database, environment, log, interruptedBySignal(interruptedStartMs)));
    const all = { ...(migrate && { migrate }), ...commands };
    return runCommand(all, environment, log).catch((error: unknown) => endWithError(log, error));
  }
  const begin = (interrupted: CancelSignal) => {
    const config = readConfig(schema, environment);
    for (const warning of misspeltSettings(Object.keys(environment), Object.keys(schema.shape))) log.warn(warning);
    return start(config, { log, interrupted });
  };
  return runUntilSignalled(log, begin, interruptedStartMs);
}

async function runCommand(commands: Commands, environment: Environment, log: Logger): Promise<void> {
  const [name = '', ...others] = process.argv.slice(2);
  const names = Object.keys(commands);
  if (!names.includes(name) || others.length > 0) {
    throw new StartError(
      `The arguments are wrong: ${names.length > 0 ? `the commands are ${names.join(', ')}` : 'it takes none'}.`,
    );
  }
  await commands[name]!(environment, log);
}

/** Names of other programs that may resemble ours. */
const foreign =
  /^(OTEL|NODE|NPM|KUBERNETES|LC|XDG|SSL|AWS|GIT|JAVA|GRANARY_TEST)_|^(HOSTNAME|HOSTTYPE|SHELL|PATH|HOME|LANG|TERM|USER)$/i;

/**
 * A sentence for each variable of the environment that resembles a setting but is not one, and for each of `ownNames`,
 * which only Granary reads, that is none.
 */
export function misspeltSettings(
  names: readonly string[],
  settingNames: readonly string[],
  ownNames: readonly string[] = [],
): string[] {
  return names.flatMap((name) => {
    if (foreign.test(name)) return [];
    const meant = misspeltName(name, settingNames) ?? misspeltName(name.replace(/^GRANARY_/i, ''), settingNames);
    if (meant !== undefined) return [`${name} is not a setting of Granary. Did you mean ${meant}?`];
    const bare = name.replace(/^GRANARY_/, '');
    if (settingNames.includes(name) || (bare === name && !ownNames.includes(name))) return [];
    return [`${name} is not a setting of Granary.${settingNames.includes(bare) ? ` Did you mean ${bare}?` : ''}`];
  });
}
