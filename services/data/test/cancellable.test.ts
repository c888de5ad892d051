import { setTimeout as delay } from 'node:timers/promises';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import { createLogger } from '@granary/shared/logger';
import { queryUntilAborted } from '../src/postgres/cancellable';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { testDatabase } from '@granary/testing/database';

let pool: Pool;
let fast: Pool;
beforeAll(async () => {
  const { url } = await testDatabase();
  const log = createLogger('test', 'silent');
  pool = createPool({ url, size: 1, applicationName: 'test', log });
  fast = createPool({ url, size: 1, applicationName: 'test-fast', log });
});
afterAll(() => Promise.all([pool.end(), fast.end()]));

test('a statement is cancelled whenever the signal comes, and the next one on the connection is not', async () => {
  for (let round = 0; round < 60; round++) {
    const signal = new Cancellation();
    const sleeping = queryUntilAborted(pool, fast, signal, { text: 'select pg_sleep(8)' });
    const outcome = expect(sleeping).rejects.toMatchObject({ code: 'CANCELLED' });
    // From before it has a connection until it has run for a moment.
    if (round % 3 === 1) await new Promise((resolve) => setImmediate(resolve));
    if (round % 3 === 2) await delay(round % 5);
    signal.abort();
    await outcome;
    const { rows } = await queryUntilAborted(pool, fast, new Cancellation(), {
      text: 'select 1 as one, pg_sleep(0.002)',
    });
    expect(rows).toMatchObject([{ one: 1 }]);
  }
});

test('a statement whose signal was aborted before never reaches Postgres', async () => {
  const signal = new Cancellation();
  signal.abort();
  const refused = queryUntilAborted(pool, fast, signal, { text: 'nonsense' });
  await expect(refused).rejects.toMatchObject({ code: 'CANCELLED' });
});
