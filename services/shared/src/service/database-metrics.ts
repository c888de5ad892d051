import { row, type Pool } from '../postgres/pool';
import { sql } from '../postgres/sql';
import { cachedFor } from '../concurrency/ttl-cache';
import { addSource } from '../telemetry/metrics';

/** The size of a database is cached this long, for Postgres stats all its files. */
const freshMs = 30_000;

/** Reports the size of a service's database at scrapes until the returned function is called. */
export function observeDatabase(service: string, pool: Pool): () => void {
  const size = cachedFor(freshMs, () =>
    row<{ bytes: bigint }>(pool, sql`select pg_database_size(current_database()) as bytes`),
  );
  return addSource({
    families: [
      {
        name: 'granary_database_bytes',
        help: 'Size of the database of a service, at most half a minute old.',
        labels: ['service'],
        type: 'gauge',
      },
    ],
    collect: async () => ({ granary_database_bytes: [[[service], Number((await size())?.bytes ?? 0n)]] }),
  });
}
