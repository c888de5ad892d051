import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { KafkaBus } from '@granary/shared/bus/bus';
import { loadOffsets } from '@granary/shared/bus/inbox';
import { row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { startPostgresProxy, type CommitFate, type PostgresProxy } from '@granary/testing/postgres-proxy';
import { startPostgres, type EmbeddedPostgres } from '../../../local/src/postgres/postgres';
import type { TestBroker } from './bus-broker';
import { Copy } from './bus-copy';
import { Ledger, type Outcome } from './bus-ledger';
import type { BusProcess } from './bus-process';
import { count, kafkaBus, openPool, prepareDatabase, publisherTables, subscriberTables, until } from './bus-world';

/** The kinds of processes that can be killed; without Kafka there are no relay and no broker. */
export const victims = {
  postgres: ['consumer', 'postgres'],
  kafka: ['relay', 'consumer', 'broker', 'postgres'],
} as const;
type VictimKind = (typeof victims)[keyof typeof victims][number];

export interface ChaosOptions {
  /** Absent: the consumers read the outbox. */
  broker: TestBroker | undefined;
  /** The least number of events. */
  events: number;
  kills: number;
  /** The time from one kill to the next. */
  everyMs: number;
  /** Chooses what is written and what is killed. */
  random: () => number;
}

export interface ChaosResult {
  events: number;
  /** The outcomes of the writes, as the writers saw them. */
  writes: Record<Outcome, number>;
  killed: Partial<Record<VictimKind, number>>;
  deadLetters: number;
  /** See Ledger. */
  problems: string[];
}

/** Something that a kill -9 ends at once. */
interface Victim {
  /** False while it restarts. */
  isReady(): boolean;
  /** Resolves when its restart is complete. */
  kill(): Promise<void>;
}

const writers = 24;
/** Beyond three times what the kills should take. */
const writeTimeoutMs = 180_000;
/** In this many commits of the writers, one commit is lost in transit, and so is the answer to another one. */
const cutEveryCommits = 200;
/**
 * The time from a restart to the next kill: after more than five crashes in a minute the embedded Postgres gives up.
 */
const postgresKillEveryMs = 12_500;
const restTimeoutMs = 240_000;
const silent = { info: () => undefined, warn: () => undefined };

/**
 * 24 writers with rollbacks, and kill -9 of random targets, each kind of them at least once, until there are enough
 * writes and kills. Then waits until no event is pending, and compares what was applied with what the writers recorded.
 * Rejects when Postgres or another target does not come back.
 */
export async function causeChaos({ broker, events, kills, everyMs, random }: ChaosOptions): Promise<ChaosResult> {
  const dataDir = await mkdtemp(join(tmpdir(), `granary-test-${process.pid}-`));
  const ended = new AbortController();
  const postgres = await startPostgres({ dataDir, log: silent, onFailure: (error) => ended.abort(error) });
  const copies: Copy[] = [];
  let proxy: PostgresProxy | undefined;
  try {
    const publisherUrl = await postgres.ensureDatabase('publisher', 'publisher');
    const subscriberUrl = await postgres.ensureDatabase('subscriber', 'subscriber');
    proxy = await startPostgresProxy(publisherUrl, cutSome());
    const publisher = openPool(publisherUrl, 2);
    const subscriber = openPool(subscriberUrl, 2);
    await prepareDatabase(publisher, publisherTables);
    await prepareDatabase(subscriber, subscriberTables);
    const bus = broker && (await kafkaBus(broker.place));
    const kafka = bus && { place: broker.place, prefix: bus.prefix };
    const twoOf = async (role: BusProcess['role']) => {
      const both = await Promise.all([0, 1].map(() => Copy.start({ role, publisherUrl, subscriberUrl, kafka })));
      copies.push(...both);
      return both;
    };

    const killer = startKiller(
      {
        ...(broker && { relay: oneOf(await twoOf('relay'), random), broker: brokerVictim(broker) }),
        consumer: oneOf(await twoOf('consumer'), random),
        postgres: postgresVictim(postgres, openPool(postgres.url('postgres'), 1)),
      },
      { kills, everyMs, ended, random },
    );
    const ledger = new Ledger(openPool(proxy.url, writers), publisher, random);
    await writeWhile(ledger, killer, { events, aboutMs: kills * everyMs, ended: ended.signal, random });
    const killed = await killer.finished;
    await untilAtRest(publisher, subscriber, bus);
    return {
      events: await ledger.eventCount(),
      writes: ledger.counts(),
      killed,
      deadLetters: await count(subscriber, 'dead_letter'),
      problems: await ledger.findProblems(subscriber),
    };
  } finally {
    // Ends the killer: after this the process ids may be those of others.
    ended.abort();
    for (const copy of copies) copy.end();
    await proxy?.stop();
    await postgres.stop();
    await rm(dataDir, { recursive: true, force: true });
  }
}

/**
 * Cuts the writers' connections at some commits, alternately before Postgres receives them and after it has answered.
 */
function cutSome(): () => CommitFate {
  let commits = 0;
  return () => {
    commits++;
    if (commits % cutEveryCommits === 0) return 'cut after';
    return commits % cutEveryCommits === cutEveryCommits / 2 ? 'cut before' : 'pass';
  };
}

interface Killer {
  isAtWork(): boolean;
  /** Resolves to the number of kills of each kind, once all that was killed is running again. */
  finished: Promise<ChaosResult['killed']>;
}

interface KillerOptions {
  kills: number;
  everyMs: number;
  /** Ends the kills; aborted when a target does not come back. */
  ended: AbortController;
  random: () => number;
}

/**
 * Kills a random running target `kills` times; the last times one of a kind of which none was killed, if there is such
 * a kind.
 */
function startKiller(all: Partial<Record<VictimKind, Victim>>, options: KillerOptions): Killer {
  const { kills, everyMs, ended, random } = options;
  const killed: ChaosResult['killed'] = {};
  const restarts: Array<Promise<void>> = [];
  let atWork = true;
  const run = async () => {
    for (let done = 0; done < kills;) {
      await delay(everyMs * (0.5 + random()));
      ended.signal.throwIfAborted();
      const spared = Object.entries(all).filter(([kind]) => !(kind in killed));
      const candidates = spared.length < kills - done ? Object.entries(all) : spared;
      const ready = candidates.filter(([, victim]) => victim.isReady());
      const [kind, victim] = ready[Math.floor(random() * ready.length)] ?? [];
      if (!victim) continue;
      const restart = victim.kill();
      restart.catch((error: unknown) => ended.abort(error));
      restarts.push(restart);
      killed[kind as VictimKind] = (killed[kind as VictimKind] ?? 0) + 1;
      done++;
    }
    atWork = false;
    await Promise.all(restarts);
    return killed;
  };
  const finished = run();
  // Its failure is reported to those that await it.
  finished.catch(() => {});
  return { isAtWork: () => atWork, finished };
}

function oneOf(copies: readonly Copy[], random: () => number): Victim {
  const ready = () => copies.filter((copy) => copy.isReady());
  return {
    isReady: () => ready().length > 0,
    kill: async () => ready()[Math.floor(random() * ready().length)]!.kill(),
  };
}

function brokerVictim(broker: TestBroker): Victim {
  let coming = false;
  return {
    isReady: () => !coming && broker.isUp(),
    kill: async () => {
      coming = true;
      await broker.kill();
      await broker.start();
      coming = false;
    },
  };
}

/** The postmaster and, at the same moment, all of its processes, which would otherwise finish their work. */
function postgresVictim(postgres: EmbeddedPostgres, superuser: Pool): Victim {
  /** Infinity while it restarts. */
  let restartedMs = -Infinity;
  return {
    isReady: () => performance.now() - restartedMs > postgresKillEveryMs,
    kill: async () => {
      restartedMs = Infinity;
      const postmaster = postgres.postmasterPid();
      // None while it recovers.
      const children = await rows<{ pid: number }>(superuser, sql`select pid from pg_stat_activity`).catch(() => []);
      for (const pid of [postmaster, ...children.map((child) => child.pid)]) {
        try {
          process.kill(pid, 'SIGKILL');
        } catch (error) {
          // It has ended by itself.
          if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
        }
      }
      await eventually(() => postgres.postmasterPid() !== postmaster);
      restartedMs = performance.now();
    },
  };
}

interface WritesOptions {
  /** The least number of events. */
  events: number;
  /** The time over which the events are spread. */
  aboutMs: number;
  ended: AbortSignal;
  random: () => number;
}

/**
 * Lets the writers write until there are so many events and the killer is done. Throws when that does not happen in
 * time.
 */
async function writeWhile(ledger: Ledger, killer: Killer, options: WritesOptions): Promise<void> {
  const { events, aboutMs, ended, random } = options;
  let written = 0;
  const writeOn = async () => {
    while (killer.isAtWork() || written < events) {
      ended.throwIfAborted();
      const write = await ledger.write();
      if (write.outcome === 'acknowledged') written += write.events;
      else await delay(20);
      const paceMs = (aboutMs * write.events * writers) / events;
      if (killer.isAtWork()) await delay(random() * 2 * paceMs);
    }
  };
  const stall = async () => {
    await delay(limitMs(writeTimeoutMs) + 3 * aboutMs, undefined, { ref: false });
    throw new Error(`the writes have stalled: ${JSON.stringify(ledger.counts())}`, { cause: ledger.errors().at(-1) });
  };
  await Promise.race([Promise.all(Array.from({ length: writers }, writeOn)), stall()]);
}

/**
 * Waits until no event is in transit: the consumer has reached the end of the outbox, or the relay has, and the
 * consumer the end of each partition. An event that is applied twice has been applied twice by then.
 */
async function untilAtRest(publisher: Pool, subscriber: Pool, bus: KafkaBus | undefined): Promise<void> {
  const positionOf = async (pool: Pool, from: Sql) =>
    (await row<{ position: string }>(pool, sql`select xid || ' ' || pos as position from ${from}`))?.position;
  const end = () => positionOf(publisher, sql`outbox order by xid desc, pos desc limit 1`);
  const atRest = async () => {
    if (!bus) return (await positionOf(subscriber, sql`bus_cursor where consumer = 'subscriber'`)) === (await end());
    if ((await positionOf(publisher, sql`outbox_reader where consumer = 'kafka-relay'`)) !== (await end()))
      return false;
    const places = await loadOffsets(subscriber, 'subscriber');
    const nextOf = (partition: number) => places.find((place) => place.partition === partition)?.next ?? 0n;
    const ranges = await bus.kafka.ranges([`${bus.prefix}.data.usage`]);
    return ranges.every(({ partition, high }) => nextOf(partition) >= high);
  };
  // The last kill may have been a moment ago.
  await until(() => atRest().catch(() => false), restTimeoutMs, 250);
}
