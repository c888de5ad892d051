import { z } from 'zod';
import { logLevel, whole } from '../config';
import { hostPort } from '../host-port';
import { kafkaSettings } from '../kafka/settings';
import { telemetrySettings } from '../telemetry/settings';
import { trustSettings } from '../trust/settings';

/** The settings for the end of a process that other processes send requests to. */
export const leavingSettings = {
  /** The time from the signal to stop until nothing new is taken, for those who send requests to notice. */
  DRAIN_DELAY_MS: whole(0, 60_000).default(0),
  /** Time that requests under way then have to finish; what is left after it is cut. */
  DRAIN_TIMEOUT_MS: whole(0, 3_600_000).default(10_000),
};

export const connectionSettings = {
  /** Age at which a server closes a connection: callers then look for the copies of the service again. */
  CONNECTION_AGE_MS: whole(1_000, 86_400_000).default(300_000),
};

/** How long something may leave health without an answer before it counts as unhealthy; until then it is degraded. */
export const healthSettings = { HEALTH_UNHEALTHY_AFTER_MS: whole(500, 600_000).default(5_000) };

/** The settings about the disk of the database of a service. */
export const storageSettings = {
  /** Directory of the database server, or of anything on the same file system, where that is on this machine. */
  DATABASE_DIRECTORY: z.string().min(1).optional(),
  /** The free bytes on a local disk below which writes are refused. */
  DISK_RESERVE_BYTES: whole(0, 1024 ** 5).default(64 * 1024 ** 2),
};

/** The settings of every service: where it listens, whom it trusts, its database, its log level, how events travel. */
export const commonConfig = z.object({
  ...trustSettings,
  ...telemetrySettings,
  ...leavingSettings,
  ...connectionSettings,
  ...healthSettings,
  ...storageSettings,
  LISTEN: hostPort.default('127.0.0.1:0'),
  DATABASE_URL: z.url({ protocol: /^postgres(ql)?$/ }),
  /** A file with the password, read again for each connection; then the URL has none. */
  DATABASE_PASSWORD_FILE: z.string().min(1).optional(),
  DATABASE_POOL_SIZE: whole(1, 100).default(8),
  /** `start`: a start brings the schema up to date; `wait`: it waits until the command `migrate` has done so. */
  MIGRATIONS: z.enum(['start', 'wait']).default('start'),
  LOG_LEVEL: logLevel.default('info'),
  /** How events travel between services; every service of a deployment has the same. */
  BUS: z.enum(['postgres', 'kafka']).default('postgres'),
  ...kafkaSettings,
});
