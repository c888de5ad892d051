import type { z } from 'zod';
import type { CancelSignal } from '../concurrency/cancellation';
import { logLevelOf, readConfig, type Environment } from '../config';
import { runUntilSignalled, type Running } from './lifecycle';
import { createLogger, type Logger } from '../logger';
import { misspeltName } from './setting-names';

/** How long a start that is interrupted may take to end; a migration that is cut off leaves nothing behind. */
const interruptedStartMs = 1_000;

/** The body of the `main.ts` of a service: reads its configuration, starts it, runs until a signal or a failure. */
export function runService<S extends z.ZodObject>(
  name: string,
  schema: S,
  environment: Environment,
  start: (config: Readonly<z.infer<S>>, overrides: { log: Logger; interrupted: CancelSignal }) => Promise<Running>,
): Promise<void> {
  const log = createLogger(name, logLevelOf(environment, 'info'));
  const begin = (interrupted: CancelSignal) => {
    const config = readConfig(schema, environment);
    for (const warning of misspeltSettings(Object.keys(environment), Object.keys(schema.shape))) log.warn(warning);
    return start(config, { log, interrupted });
  };
  return runUntilSignalled(log, begin, interruptedStartMs);
}

/** Names of other programs that may resemble ours. */
const foreign =
  /^(OTEL|NODE|NPM|KUBERNETES|LC|XDG|SSL|AWS|GIT|JAVA|GRANARY_TEST)_|^(HOSTNAME|HOSTTYPE|SHELL|PATH|HOME|LANG|TERM|USER)$/i;

/** A sentence for each variable of the environment that resembles a setting but is not one. */
export function misspeltSettings(names: readonly string[], known: readonly string[]): string[] {
  return names.flatMap((name) => {
    if (foreign.test(name)) return [];
    const meant = misspeltName(name, known) ?? misspeltName(name.replace(/^GRANARY_/i, ''), known);
    if (meant !== undefined) return [`${name} is not a setting of Granary. Did you mean ${meant}?`];
    const bare = name.replace(/^GRANARY_/, '');
    if (bare === name || known.includes(name)) return [];
    return [`${name} is not a setting of Granary.${known.includes(bare) ? ` Did you mean ${bare}?` : ''}`];
  });
}
