import { z } from 'zod';
import { logLevel, optionalText, whole } from '../config';
import { hostPort } from '../host-port';
import { kafkaSettings } from '../kafka/settings';
import { telemetrySettings } from '../telemetry/settings';
import { trustSettings } from '../trust/settings';

/** The settings for the end of a process that other processes send requests to. */
export const leavingSettings = {
  DRAIN_DELAY_MS: whole(0, 60_000)
    .default(0)
    .describe(
      'Time from the stop signal until nothing new is accepted. `/readyz` answers 503 meanwhile, so that callers go elsewhere.',
    ),
  DRAIN_TIMEOUT_MS: whole(0, 3_600_000)
    .default(10_000)
    .describe('Time that requests, calls and transfers in flight then have to finish; the rest is cut off.'),
};

export const connectionSettings = {
  CONNECTION_AGE_MS: whole(1_000, 86_400_000)
    .default(300_000)
    .describe(
      'Age at which a server closes a connection, so that callers find [new replicas](scale.md#replicas-and-rolling-updates).',
    ),
};

/** When a dependency counts as unhealthy. */
export const healthSettings = {
  HEALTH_UNHEALTHY_AFTER_MS: whole(500, 600_000)
    .default(5_000)
    .describe('A dependency that has not answered for this long is unhealthy; until then it is degraded.'),
};

/** The limit of blobs, which is the same in the gateway and in blobs. */
export const blobSettings = {
  MAX_BLOB_BYTES: whole(1, 1024 ** 4)
    .default(1024 ** 3)
    .describe('The largest blob.'),
};

/** The settings about the disk of the database of a service. */
export const storageSettings = {
  DATABASE_DIRECTORY: optionalText.describe(
    'A directory on the disk of the database, if that is on the same machine. Set it for `data`.',
  ),
  DISK_RESERVE_BYTES: whole(0, 1024 ** 5)
    .default(64 * 1024 ** 2)
    .describe('[Writes are refused](run.md#a-full-disk) while a local disk has fewer free bytes.'),
};

/** The settings of every service: where it listens, whom it trusts, its database, its log level, how events travel. */
export const commonConfig = z.object({
  LISTEN: hostPort
    .default('127.0.0.1:0')
    .describe('host:port of its gRPC server; an IPv6 address stands in brackets, `[::]:5000`.'),
  DATABASE_URL: z
    .url({ protocol: /^postgres(ql)?$/ })
    .describe('Its own database: Postgres 18 or newer, UTF-8, collation `C` or `C.UTF-8`.'),
  DATABASE_PASSWORD_FILE: optionalText.describe(
    'File with the password of the database. It is read for each connection, so it may change. `DATABASE_URL` then has no password.',
  ),
  DATABASE_POOL_SIZE: whole(1, 100).default(8).describe('Connections to the database.'),
  MIGRATIONS: z
    .enum(['start', 'wait'])
    .default('start')
    .describe(
      '`start`: a start brings the schema up to date. `wait`: a start waits until [the command `migrate`](#migrations) has done so.',
    ),
  LOG_LEVEL: logLevel.default('info').describe('Log lines below this level are dropped.'),
  BUS: z
    .enum(['postgres', 'kafka'])
    .default('postgres')
    .describe('How events travel between services; the same in every service.'),
  ...storageSettings,
  ...leavingSettings,
  ...connectionSettings,
  ...healthSettings,
  ...kafkaSettings,
  ...trustSettings,
  ...telemetrySettings,
});
