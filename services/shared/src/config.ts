import { z } from 'zod';
import { telemetrySettings } from './telemetry/settings';
import { trustSettings } from './trust/settings';

/** What the person who starts a service can mend; its message is a sentence for that person. */
export class ConfigError extends Error {
  override readonly name: string = 'ConfigError';
}

/**
 * Reads a service's configuration from an environment, once: every problem is reported together, the result is
 * frozen. Throws a ConfigError whose message names each variable and what is wrong with it, never its value.
 */
export function readConfig<S extends z.ZodObject>(
  schema: S,
  environment: Record<string, string | undefined>,
): Readonly<z.infer<S>> {
  const result = schema.safeParse(environment);
  if (result.success) return Object.freeze(result.data);
  const problems = result.error.issues.map((issue) => `  ${issue.path.join('.')}: ${issue.message}`);
  throw new ConfigError(`The configuration is wrong:\n${problems.join('\n')}`);
}

/** A whole number of an environment variable, within bounds. */
export const whole = (min: number, max: number) => z.coerce.number().int().min(min).max(max);

/** How a process leaves that other processes send requests to. */
export const leavingSettings = {
  /** From the signal to stop until nothing new is taken, for those who send requests to notice. */
  DRAIN_DELAY_MS: whole(0, 60_000).default(0),
  /** Time that requests under way then have to finish; what is left after it is cut. */
  DRAIN_TIMEOUT_MS: whole(0, 3_600_000).default(10_000),
};

/** How long something may leave health without an answer before it counts as unhealthy; until then it is degraded. */
export const healthSettings = { HEALTH_UNHEALTHY_AFTER_MS: whole(500, 600_000).default(5_000) };

/** `host:port` or `dns:///name:port`, every address of the name; or the addresses, with commas between. */
export const grpcAddress = z
  .string()
  .regex(
    /^([^\s,]+:\d{1,5}|\d+(\.\d+){3}:\d{1,5}(,\d+(\.\d+){3}:\d{1,5})+)$/,
    'host:port, dns:///name:port, or several IPv4 addresses with ports and commas between are expected',
  );

/** What every service reads: where it listens, whom it trusts, its database, how loud its log is, how events travel. */
export const commonConfig = z.object({
  ...trustSettings,
  ...telemetrySettings,
  ...leavingSettings,
  ...healthSettings,
  LISTEN: z
    .string()
    .regex(/^[^:\s]+:\d{1,5}$/, 'host:port is expected')
    .default('127.0.0.1:0'),
  DATABASE_URL: z.url({ protocol: /^postgres(ql)?$/ }),
  DATABASE_POOL_SIZE: whole(1, 100).default(8),
  LOG_LEVEL: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),
  /** How events travel between services; every service of a deployment has the same. */
  BUS: z.enum(['postgres', 'kafka']).default('postgres'),
  KAFKA_BROKERS: z
    .string()
    .regex(/^[^:,\s]+:\d{1,5}(,[^:,\s]+:\d{1,5})*$/, 'host:port is expected, or several with commas between')
    .optional(),
  /** Begins the names of topics and groups. */
  KAFKA_TOPIC_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,64}$/, 'letters, digits, _ and - are expected')
    .default('granary'),
});
