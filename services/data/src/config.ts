import { publicUrl, whole } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';
import { z } from 'zod';

export const dataConfig = commonConfig.extend({
  /** The build of an index uses one connection for reading and others for its writes. */
  DATABASE_POOL_SIZE: whole(2, 100).default(8),
  /** Connections for look-ups of keys and of the catalog. */
  FAST_POOL_SIZE: whole(1, 100).default(2),
  /** Connections for short reads that one index answers, each for many at once; about as many as the database has cores. */
  PIPELINED_POOL_SIZE: whole(1, 100).default(2),
  /** Bulks that are preloaded at a time while small writes arrive; the cores of the database less one. */
  PRELOAD_CONCURRENCY: whole(1, 100).default(1),
  /** Writes that are parsed or wait for their batch; beyond, further ones are refused. */
  WRITE_BUFFER_BYTES: whole(1024 ** 2, 64 * 1024 ** 3).default(256 * 1024 ** 2),
  /** Where this copy keeps the skills documents as files. */
  SKILLS_DIRECTORY: z.string().min(1),
  /** Time of the statements of one read without a key, together, beside pages that an index gives alone. */
  PUBLIC_READ_TIMEOUT_MS: whole(10, 60_000).default(2_000),
  /** Rows that a read without a key may pass where no index narrows them. */
  PUBLIC_READ_ROWS_MAX: whole(1, 1_000_000_000).default(1_000_000),
  /** How often documents past their retention are purged. */
  MAINTENANCE_EVERY_MS: whole(50, 86_400_000).default(60_000),
  /** Who may read collections and views created without an access policy, for example by a write. */
  DEFAULT_READ: z.enum(['public', 'private']).default('public'),
  /** CSV of networks and countries, for inCountry: read at the start and after each change. Without it inCountry is refused. */
  COUNTRY_NETWORKS_FILE: z.string().min(1).optional(),
  /** The public address of the gateway, for the examples in skills documents. */
  PUBLIC_URL: publicUrl.default('http://127.0.0.1:8080'),
});

export type DataConfig = z.infer<typeof dataConfig>;
