import { randomUUID } from 'node:crypto';
import { execute, type Pool } from './pool';
import { sql, type Sql } from './sql';

/** The table of leases, which a migration of the service's database creates. */
export const leaseTable = `create table bus_lease (
  name text collate "C" primary key,
  holder uuid not null,
  until timestamptz not null
);`;

/**
 * A lease: the exclusive right of one process, for a limited time, by a row in the database. A holder may be paused and
 * not know that its lease has expired, so its writes must be fenced: `fence` is a part of their statements.
 */
export interface Lease {
  /** Acquires or renews it; false when another process holds it. */
  take(): Promise<boolean>;
  /** Whether, by the clock of this process, no other one can hold it. */
  isHeld(): boolean;
  /** A statement, for a `with`, that renews the lease and returns one row if it is held. */
  fence(): Sql;
  /** Releases it before it expires; with `blockedMs` no process can acquire it for that time. */
  release(blockedMs?: number): Promise<void>;
}

/** The lease of that name, for `ttlMs` at a time, in a database with `leaseTable`. It is not acquired yet. */
export function createLease(pool: Pool, name: string, ttlMs: number): Lease {
  const holder = randomUUID();
  const end = sql`clock_timestamp() + ${ttlMs} * interval '1 millisecond'`;
  let untilMs = 0;
  return {
    take: async () => {
      const askedMs = performance.now();
      const taken = await execute(
        pool,
        sql`insert into bus_lease as lease (name, holder, until) values (${name}, ${holder}, ${end})
          on conflict (name) do update set holder = excluded.holder, until = excluded.until
          where lease.holder = excluded.holder or lease.until < clock_timestamp()`,
      );
      untilMs = taken === 1 ? askedMs + ttlMs : 0;
      return taken === 1;
    },
    isHeld: () => performance.now() < untilMs,
    fence: () =>
      sql`update bus_lease set until = ${end}
        where name = ${name} and holder = ${holder} and until >= clock_timestamp() returning 1`,
    release: async (blockedMs) => {
      untilMs = 0;
      const mine = sql`name = ${name} and holder = ${holder}`;
      // No process is the holder of a blocked lease.
      await execute(
        pool,
        blockedMs === undefined
          ? sql`delete from bus_lease where ${mine}`
          : sql`update bus_lease set holder = ${randomUUID()}, until = clock_timestamp() + ${blockedMs} * interval '1 millisecond'
              where ${mine}`,
      );
    },
  };
}
