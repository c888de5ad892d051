import { z } from 'zod';
import { StartError } from './start-error';

/** A setting that is wrong or missing. */
export class ConfigError extends StartError {
  override readonly name: string = 'ConfigError';
}

export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads a service's configuration from an environment, once: every problem is reported together, the result is frozen.
 * An empty variable is one that is not set. Throws a ConfigError whose message names each variable, what is wrong with
 * it, and its value unless that may be a secret.
 */
export function readConfig<S extends z.ZodObject>(schema: S, environment: Environment): Readonly<z.infer<S>> {
  const result = schema.safeParse(withoutEmpty(environment));
  if (result.success) return Object.freeze(result.data);
  const problems = result.error.issues.map(({ path, message }) => [path.join('.'), message] as const);
  throw wrongConfig(problems, environment);
}

/** One error for all problems, each with the name of its setting, and with its value where `environment` has one. */
export function wrongConfig(
  problems: ReadonlyArray<readonly [name: string, problem: string]>,
  environment: Environment = {},
): ConfigError {
  const lines = new Set(
    problems.map(([name, problem]) => `  ${name}: ${problem}${shownValue(name, environment[name])}`),
  );
  return new ConfigError(`The configuration is wrong:\n${[...lines].join('\n')}`);
}

/** Names of settings whose values may hold a key or a password: addresses of nodes and databases do. */
const secret = /KEY|SECRET|PASSWORD|TOKEN|USERNAME|CALLERS|ENDPOINT|(?<!^PUBLIC_)URL/;
const shownLength = 100;

function shownValue(name: string, value: string | undefined): string {
  if (value === undefined || value === '' || secret.test(name)) return '';
  return ` (it is ${JSON.stringify(value.length > shownLength ? `${value.slice(0, shownLength)}…` : value)})`;
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

export const logLevel = z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']);

/** The log level of a process whose configuration has not been checked yet. */
export function logLevelOf({ LOG_LEVEL }: Environment, otherwise: z.infer<typeof logLevel>): string {
  return logLevel.catch(otherwise).parse(LOG_LEVEL);
}

/** `host:port` or `dns:///name:port`, every address of the name; or the addresses, with commas between. */
export const grpcAddress = z
  .string()
  .regex(
    /^([^\s,]+:\d{1,5}|\d+(\.\d+){3}:\d{1,5}(,\d+(\.\d+){3}:\d{1,5})+)$/,
    'host:port, dns:///name:port, or several IPv4 addresses with ports and commas between are expected',
  );

/** A text that may be absent, such as the path of a file. */
export const optionalText = z.string().min(1).optional();

const isOrigin = (text: string) => URL.canParse(text) && new URL(text).origin === text.replace(/\/$/, '');

/** The gRPC address of another service; it may be absent only where that service runs in the same process. */
export const serviceAddress = (service: string) =>
  grpcAddress.optional().meta({ description: `gRPC address of ${service}.`, defaultText: 'required' });

/** The address of a server over HTTP, without a path. */
export const origin = z.url({ protocol: /^https?$/ }).refine(isOrigin, 'scheme, host and port alone are expected');

/**
 * How clients reach the gateway. It goes into commands that people paste into a shell, so nothing else may be in it.
 */
export const publicUrl = z
  .url({ protocol: /^https?$/, error: 'http:// or https://, a host and perhaps a path are expected' })
  .regex(/^[A-Za-z0-9:/?.[\]_~%-]+$/, 'only letters, digits and :/.-_~% are expected')
  .transform((text) => text.replace(/\/+$/, ''));
