import { fork, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { transaction } from '@granary/shared/postgres/transaction';
import { startPostgres } from '../../local/src/postgres/postgres';
import type { TestBroker } from './bus-broker';
import type { BusProcess } from './bus-process';
import {
  appliedSequences,
  count,
  kafkaBus,
  openPool,
  prepareDatabase,
  publish,
  publishedSequences,
  publisherTables,
  subscriberTables,
  until,
} from './bus-world';

export interface ChaosOptions {
  /** Absent: the consumers read the outbox. */
  broker: TestBroker | undefined;
  /** At least. */
  events: number;
  kills: number;
  /** From one kill to the next. */
  everyMs: number;
}

const writers = 24;
const keys = 60;
/** More in a minute, and the embedded Postgres gives up; see its crashesMax. */
const postgresKillEveryMs = 15_000;
const silent = { info: () => undefined, warn: () => undefined };

/** A process that is made again whenever it ends. */
class Copy {
  kills = 0;
  private child: ChildProcess | undefined;
  private isReady = false;
  private ending = false;

  constructor(private readonly what: BusProcess) {
    this.begin();
  }

  private begin(): void {
    const fromSource = join(__dirname, '..', '..', 'local', 'test', 'from-source.js');
    this.isReady = false;
    this.child = fork(join(__dirname, 'bus-process.ts'), [JSON.stringify(this.what)], {
      execArgv: ['--conditions', 'source', '--require', fromSource],
    });
    this.child.once('message', () => {
      this.isReady = true;
    });
    this.child.once('exit', () => {
      if (!this.ending) this.begin();
    });
  }

  /** False while it has not even started. */
  kill(): boolean {
    if (!this.isReady) return false;
    this.isReady = false;
    this.child!.kill('SIGKILL');
    this.kills++;
    return true;
  }

  end(): void {
    this.ending = true;
    this.child!.kill('SIGKILL');
  }
}

/**
 * 24 writers with rollbacks, and again and again a kill -9 of one of relay, consumer, broker and Postgres, until there
 * are enough of both. Answers what was published and what was applied when all had come to rest, and who was killed.
 */
export async function causeChaos({ broker, events, kills, everyMs }: ChaosOptions) {
  const dataDir = await mkdtemp(join(tmpdir(), `granary-test-${process.pid}-`));
  const postgres = await startPostgres({ dataDir, log: silent });
  const copies: Copy[] = [];
  try {
    const publisherUrl = await postgres.ensureDatabase('publisher', 'publisher');
    const subscriberUrl = await postgres.ensureDatabase('subscriber', 'subscriber');
    const publisher = openPool(publisherUrl, writers + 2);
    const subscriber = openPool(subscriberUrl, 2);
    await prepareDatabase(publisher, publisherTables);
    await prepareDatabase(subscriber, subscriberTables);
    const prefix = broker && (await kafkaBus(broker.address)).prefix;
    const kafka = broker && { address: broker.address, prefix: prefix! };
    const roles: Array<BusProcess['role']> = broker
      ? ['relay', 'relay', 'consumer', 'consumer']
      : ['consumer', 'consumer'];
    copies.push(...roles.map((role) => new Copy({ role, publisherUrl, subscriberUrl, kafka })));

    const killed = { relay: 0, consumer: 0, broker: 0, postgres: 0 };
    const killOneOf = (role: BusProcess['role']) => () => {
      const candidates = copies.filter((_, at) => roles[at] === role);
      const done = candidates[Math.floor(Math.random() * candidates.length)]!.kill();
      if (done) killed[role]++;
      return done;
    };
    let brokerComing: Promise<void> = Promise.resolve();
    const killBroker = () => {
      if (!broker!.isUp()) return false;
      killed.broker++;
      brokerComing = broker!.kill().then(() => broker!.start());
      return true;
    };
    let postgresKilledMs = -Infinity;
    const killPostgres = () => {
      if (Date.now() - postgresKilledMs < postgresKillEveryMs) return false;
      postgresKilledMs = Date.now();
      killed.postgres++;
      process.kill(postgres.postmasterPid(), 'SIGKILL');
      return true;
    };
    const targets = broker
      ? [killOneOf('relay'), killOneOf('consumer'), killBroker, killPostgres]
      : [killOneOf('consumer'), killOneOf('consumer'), killPostgres];

    let killing = true;
    const killer = (async () => {
      for (let done = 0; done < kills;) {
        await delay(everyMs * (0.5 + Math.random()));
        await brokerComing;
        if (targets[Math.floor(Math.random() * targets.length)]!()) done++;
      }
      await brokerComing;
      killing = false;
    })();

    // Few enough that they go on for as long as the kills do.
    let written = 0;
    const write = async () => {
      while (killing || written < events) {
        const size = 1 + Math.floor(Math.random() * 14);
        await transaction(publisher, async (tx) => {
          if (Math.random() < 0.5) await tx.query('insert into noise default values');
          await publish(tx, `key-${Math.floor(Math.random() * keys)}`, size);
          if (Math.random() < 0.1) throw new Error('changed my mind');
          written += size;
        }).catch(() => delay(20));
        const paceMs = (kills * everyMs * size * writers) / events;
        await delay(Math.random() * 2 * paceMs);
      }
    };
    await Promise.all([killer, ...Array.from({ length: writers }, write)]);

    const publishedAll = () => publishedSequences(publisher).catch(() => undefined);
    await until(async () => (await publishedAll()) !== undefined);
    const { total, sequences: published } = (await publishedAll())!;
    await until(async () => (await count(subscriber, 'applied').catch(() => 0)) >= total, 120_000);
    return {
      ...{ total, published, killed },
      applied: await appliedSequences(subscriber),
      deadLetters: await count(subscriber, 'dead_letter'),
    };
  } finally {
    for (const copy of copies) copy.end();
    await postgres.stop();
    await rm(dataDir, { recursive: true, force: true });
  }
}
