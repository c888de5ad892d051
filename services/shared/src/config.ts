import { z } from 'zod';
import { kafkaSettings } from './kafka/settings';
import { StartError } from './start-error';
import { telemetrySettings } from './telemetry/settings';
import { trustSettings } from './trust/settings';

/** A setting that is wrong or missing. */
export class ConfigError extends StartError {
  override readonly name: string = 'ConfigError';
}

export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads a service's configuration from an environment, once: every problem is reported together, the result is
 * frozen. An empty variable is one that is not set. Throws a ConfigError whose message names each variable and what is
 * wrong with it, never its value.
 */
export function readConfig<S extends z.ZodObject>(schema: S, environment: Environment): Readonly<z.infer<S>> {
  const result = schema.safeParse(withoutEmpty(environment));
  if (result.success) return Object.freeze(result.data);
  throw wrongConfig(result.error.issues.map((issue) => [issue.path.join('.'), issue.message]));
}

/** One error for all problems, each with the name of its setting. */
export function wrongConfig(problems: ReadonlyArray<readonly [name: string, problem: string]>): ConfigError {
  const lines = new Set(problems.map(([name, problem]) => `  ${name}: ${problem}`));
  return new ConfigError(`The configuration is wrong:\n${[...lines].join('\n')}`);
}

export function withoutEmpty(environment: Environment): Record<string, string> {
  const set = Object.entries(environment).filter(([, value]) => value !== undefined && value !== '');
  return Object.fromEntries(set) as Record<string, string>;
}

/** A whole number of an environment variable, within bounds. */
export const whole = (min: number, max: number) => {
  const error = `a whole number from ${min} to ${max} is expected`;
  return z.coerce.number({ error }).int({ error }).min(min, { error }).max(max, { error });
};

const logLevel = z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']);

/** For the log of a process whose configuration has not been checked yet. */
export function logLevelOf({ LOG_LEVEL }: Environment, otherwise: z.infer<typeof logLevel>): string {
  return logLevel.catch(otherwise).parse(LOG_LEVEL);
}

/** How a process leaves that other processes send requests to. */
export const leavingSettings = {
  /** From the signal to stop until nothing new is taken, for those who send requests to notice. */
  DRAIN_DELAY_MS: whole(0, 60_000).default(0),
  /** Time that requests under way then have to finish; what is left after it is cut. */
  DRAIN_TIMEOUT_MS: whole(0, 3_600_000).default(10_000),
};

/** How long something may leave health without an answer before it counts as unhealthy; until then it is degraded. */
export const healthSettings = { HEALTH_UNHEALTHY_AFTER_MS: whole(500, 600_000).default(5_000) };

/** What a service may know of the disk of its database. */
export const storageSettings = {
  /** Directory of the database server, or of anything on the same file system, where that is on this machine. */
  DATABASE_DIRECTORY: z.string().min(1).optional(),
  /** With less free bytes on a local disk writes are refused. */
  DISK_RESERVE_BYTES: whole(0, 1024 ** 5).default(64 * 1024 ** 2),
};

/** `host:port` or `dns:///name:port`, every address of the name; or the addresses, with commas between. */
export const grpcAddress = z
  .string()
  .regex(
    /^([^\s,]+:\d{1,5}|\d+(\.\d+){3}:\d{1,5}(,\d+(\.\d+){3}:\d{1,5})+)$/,
    'host:port, dns:///name:port, or several IPv4 addresses with ports and commas between are expected',
  );

/** How clients reach the gateway. It goes into commands that people paste into a shell, so nothing else may be in it. */
export const publicUrl = z
  .url({ protocol: /^https?$/, error: 'http:// or https://, a host and perhaps a path are expected' })
  .regex(/^[A-Za-z0-9:/?.[\]_~%-]+$/, 'only letters, digits and :/.-_~% are expected')
  .transform((text) => text.replace(/\/+$/, ''));

/** What the tools for Kafka read. */
export const kafkaConfig = z.object(kafkaSettings);

/** What every service reads: where it listens, whom it trusts, its database, how loud its log is, how events travel. */
export const commonConfig = z.object({
  ...trustSettings,
  ...telemetrySettings,
  ...leavingSettings,
  ...healthSettings,
  ...storageSettings,
  LISTEN: z
    .string()
    .regex(/^[^:\s]+:\d{1,5}$/, 'host:port is expected')
    .default('127.0.0.1:0'),
  DATABASE_URL: z.url({ protocol: /^postgres(ql)?$/ }),
  DATABASE_POOL_SIZE: whole(1, 100).default(8),
  LOG_LEVEL: logLevel.default('info'),
  /** How events travel between services; every service of a deployment has the same. */
  BUS: z.enum(['postgres', 'kafka']).default('postgres'),
  ...kafkaSettings,
});
