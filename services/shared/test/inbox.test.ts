import { randomUUID } from 'node:crypto';
import { applyEvents, PoisonEvent } from '@granary/shared/bus/inbox';
import { busMigrations } from '@granary/shared/bus/migrations';
import type { Event } from '@granary/shared/gen/granary/events/v1/Event';
import { createLogger } from '@granary/shared/logger';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { transaction } from '@granary/shared/postgres/transaction';
import { testDatabase } from '@granary/testing/database';

const dayMs = 86_400_000;
let pool: Pool;
beforeAll(async () => {
  const { url } = await testDatabase();
  pool = createPool({ url, size: 2, applicationName: 'inbox-test', log: createLogger('inbox-test', 'silent') });
  await applyMigrations(pool, 'bus', busMigrations);
});
afterAll(() => pool.end());

test('an event that comes again after its entry in the inbox was removed is not applied again; one that takes its number is refused', async () => {
  const event = (aggregateSequence: string, daysAgo: number): Event => ({
    id: randomUUID(),
    topic: 'usage',
    key: 'films',
    aggregateId: 'films',
    aggregateSequence,
    type: 'document.stored',
    payload: Buffer.from('{}'),
    at: new Date(Date.now() - daysAgo * dayMs).toISOString(),
    trace: '',
    position: null,
    signatures: '',
  });
  const applied: bigint[] = [];
  const apply = (...events: Event[]) =>
    transaction(pool, (tx) =>
      applyEvents(tx, 'finance', events, (_tx, { aggregateSequence }) => {
        applied.push(aggregateSequence);
        return Promise.resolve();
      }),
    );
  const old = [event('1', 20), event('2', 20)];
  await apply(...old);
  await apply(...old);
  await pool.query('delete from inbox');
  await apply(...old);
  expect(applied).toEqual([1n, 2n]);
  await expect(apply(event('2', 1))).rejects.toThrow(PoisonEvent);
  await apply(event('3', 1));
  expect(applied).toEqual([1n, 2n, 3n]);
});
