import { outboxImplementation } from '@granary/shared/bus/outbox';
import { createSignal } from '@granary/shared/concurrency/signal';
import { newCall } from '@granary/shared/rpc/types';
import { row } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { testSigner } from '@granary/testing/event-keys';
import { transaction } from '@granary/shared/postgres/transaction';
import { limitMs } from '@granary/testing/speed';
import { sharedBusTests } from './support/bus-suite';
import { appliedSequences, count, endWorlds, log, publish, until, upTo, world } from './support/bus-world';

afterEach(endWorlds);

describe('events', () => {
  sharedBusTests(() => Promise.resolve(undefined), 10);

  test('events that were altered in transit are refused, park nothing, and are replaced by the real ones', async () => {
    const { publisher, subscriber, source, consume } = await world();
    await transaction(publisher, async (tx) => {
      for (const key of ['a', 'b']) await publish(tx, key, 6);
    });
    const changed: typeof source = {
      ...source,
      read: async (request, call) => {
        const answer = await source.read(request, call);
        const events = answer.events.map((event) =>
          event.key === 'a' && Number(event.aggregateSequence) % 2 === 0
            ? { ...event, payload: Buffer.from('{"value":"666"}') }
            : event,
        );
        return { ...answer, events };
      },
    };
    const consumer = consume({ source: changed });
    // The next event of the key follows a gap, where one was refused; the last one has not been read yet.
    await until(async () => (await count(subscriber, 'applied')) === 5 + 6);
    expect(await appliedSequences(subscriber)).toEqual({ a: upTo(5), b: upTo(6) });
    expect(await count(subscriber, 'dead_letter')).toBe(0);
    const { rows: refused } = await subscriber.query<{ why: string; source: string }>(
      'select why, source from refused_event',
    );
    expect(refused.map(({ why }) => why)).toEqual(Array(3).fill('not signed by its publisher'));
    expect(await consumer.lag()).toEqual({
      status: 'DEGRADED',
      message: '3 messages to subscriber were refused, not signed by their publisher',
    });
    await transaction(publisher, (tx) => publish(tx, 'a', 1));
    await until(async () => (await count(subscriber, 'applied')) === 7 + 6);
    const values = await subscriber.query('select from applied where value = 666');
    expect(values.rowCount).toBe(0);
  });

  test('events are not skipped when another server answers for their outbox', async () => {
    const { publisher, subscriber, source, consume } = await world();
    let isHonest = false;
    let answers = 0;
    const other: typeof source = {
      ...source,
      read: async (request, call) => {
        const answer = await source.read(request, call);
        if (isHonest) return answer;
        answers++;
        return { ...answer, events: [], next: { ...answer.next!, xid: '9000000000000000000' } };
      },
    };
    await transaction(publisher, (tx) => publish(tx, 'a', 3));
    consume({ source: other });
    await until(async () => answers > 2);
    isHonest = true;
    await until(async () => (await count(subscriber, 'applied')) === 3);
    expect(await appliedSequences(subscriber)).toEqual({ a: upTo(3) });
  });

  test('events that all consumers have read are removed after the retention, others never', async () => {
    const { publisher } = await world();
    const appended = createSignal();
    const handlers = outboxImplementation({
      pool: publisher,
      log,
      signer: testSigner,
      appended,
      retentionMs: 0,
      trimEveryMs: 0,
    }).handlers;
    await transaction(publisher, (tx) => publish(tx, 'a', 4));
    const read = (consumer: string, after: Parameters<typeof handlers.read>[0]['after'], limit: number) =>
      handlers.read({ consumer, after, limit, topics: [], waitMs: 0 }, newCall('test', limitMs(5_000)));
    const left = async () =>
      (await row<{ seqs: string | null }>(
        publisher,
        sql`select string_agg(agg_seq::text, ',' order by pos) as seqs from outbox`,
      ))!.seqs;

    // Transactions of others in the same cluster may hold the events back for a while.
    await until(async () => (await read('fast', null, 4)).events.length === 4);
    const slow = await read('slow', null, 1);
    const fast = await read('fast', null, 3);
    await read('fast', fast.next, 3);
    expect(await left()).toBe('1,2,3,4');
    // Another replica of the service has no cached time of the last save of the readers' positions.
    const copy = outboxImplementation({
      pool: publisher,
      log,
      signer: testSigner,
      retentionMs: 0,
      trimEveryMs: 0,
    }).handlers;
    await copy.read(
      { consumer: 'fast', after: fast.next, limit: 3, topics: [], waitMs: 0 },
      newCall('test', limitMs(5_000)),
    );
    await copy.read(
      { consumer: 'slow', after: slow.next, limit: 1, topics: [], waitMs: 0 },
      newCall('test', limitMs(5_000)),
    );
    expect(await left()).toBe('2,3,4');
  });
});
