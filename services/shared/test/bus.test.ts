import { outboxImplementation } from '@granary/shared/bus/outbox';
import { createSignal } from '@granary/shared/bus/signal';
import { newCall } from '@granary/shared/grpc/types';
import { row } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { scaledMs } from '@granary/shared/testing/speed';
import { sharedBusTests } from './bus-suite';
import { endWorlds, log, publish, until, world } from './bus-world';

afterEach(endWorlds);

describe('events', () => {
  sharedBusTests(() => Promise.resolve(undefined), 10);

  test('that everybody has read are removed after the retention, others never', async () => {
    const { publisher } = await world();
    const appended = createSignal();
    const handlers = outboxImplementation({ pool: publisher, log, appended, retentionMs: 0, trimEveryMs: 0 }).handlers;
    await transaction(publisher, (tx) => publish(tx, 'a', 4));
    const read = (consumer: string, after: Parameters<typeof handlers.read>[0]['after'], limit: number) =>
      handlers.read({ consumer, after, limit, topics: [], waitMs: 0 }, newCall('test', scaledMs(5_000)));
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
    // Another copy of the service: it has no memory of when the readers' places were saved last.
    const copy = outboxImplementation({ pool: publisher, log, retentionMs: 0, trimEveryMs: 0 }).handlers;
    await copy.read(
      { consumer: 'fast', after: fast.next, limit: 3, topics: [], waitMs: 0 },
      newCall('test', scaledMs(5_000)),
    );
    await copy.read(
      { consumer: 'slow', after: slow.next, limit: 1, topics: [], waitMs: 0 },
      newCall('test', scaledMs(5_000)),
    );
    expect(await left()).toBe('2,3,4');
  });
});
