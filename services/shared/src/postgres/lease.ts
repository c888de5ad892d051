import { randomUUID } from 'node:crypto';
import { execute, type Pool } from './pool';
import { sql, type Sql } from './sql';

/**
 * The right to do something that one copy of a service does at a time, by a row in its database. Whoever holds it may
 * be paused and not know that it has lost it, so what it writes must go through `fenced`.
 */
export interface Lease {
  /** Takes it or renews it; false when another has it. */
  take(): Promise<boolean>;
  /** Whether, by the clock of this process, nobody else can have it. */
  isHeld(): boolean;
  /** A statement that renews the lease and has one row if it is held, to be the first part of a `with`. */
  fence(): Sql;
  /** Gives it back, so that another copy need not wait for its end; or, with `restMs`, lets nobody have it for so long. */
  release(restMs?: number): Promise<void>;
}

/**
 * The lease of that name, for `ttlMs` at a time, in a database with the tables of events (see bus/migrations.ts). Nothing
 * is taken yet.
 */
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
    release: async (restMs) => {
      untilMs = 0;
      const mine = sql`name = ${name} and holder = ${holder}`;
      // Nobody is the holder of one that rests.
      await execute(
        pool,
        restMs === undefined
          ? sql`delete from bus_lease where ${mine}`
          : sql`update bus_lease set holder = ${randomUUID()}, until = clock_timestamp() + ${restMs} * interval '1 millisecond'
              where ${mine}`,
      );
    },
  };
}
