import { newTicket } from '@granary/shared/ids';
import { createLogger } from '@granary/shared/logger';
import { createPool, execute, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { newCall } from '@granary/shared/rpc/types';
import { serviceDatabase } from '@granary/testing/service-database';
import { tasksHandlers } from '../src/handlers';
import { tasksSchema } from '../src/service';

const log = createLogger('tasks-test', 'silent');
let pool: Pool;
let list: (request: object) => Promise<{ tickets: string[]; next: string }>;
beforeAll(async () => {
  pool = createPool({ url: (await serviceDatabase(tasksSchema)).url, size: 2, applicationName: 'tasks-test', log });
  const handlers = tasksHandlers({ pool, log, data: {} as Parameters<typeof tasksHandlers>[0]['data'] });
  list = async (request) => {
    const whole = { appId: 'films', status: '', limit: 100, cursor: '', ...request };
    const { tasks, nextCursor } = await handlers.listTasks(whole, newCall('test', 10_000));
    return { tickets: tasks.map(({ ticketId }) => ticketId), next: nextCursor };
  };
});
afterAll(() => pool.end());

const add = async (second: number, { appId = 'films', status = 'Completed', resultText = '{}' } = {}) => {
  const ticketId = newTicket('j', 7n);
  const time = new Date(Date.UTC(2026, 0, 1, 0, 0, second));
  await execute(
    pool,
    sql`insert into task (ticket_id, app_id, operation_type, status, error, result_text, created_at, updated_at)
        values (${ticketId}, ${appId}, 'view.refresh', ${status}, ${status === 'Failed' ? 'why' : null}, ${resultText},
          ${time}, ${time})`,
  );
  return ticketId;
};
const pagesOf = async (request: object) => {
  const pages: string[][] = [];
  for (let cursor = ''; ;) {
    const { tickets, next } = await list({ ...request, cursor });
    pages.push(tickets);
    if (next === '') return pages;
    cursor = next;
  }
};

test('tasks of one time have an order too, so that pages of any size have each of them once', async () => {
  const appId = 'same-time';
  const made: string[] = [];
  for (const second of [1, 2, 2, 2, 2, 3]) made.push(await add(second, { appId }));
  await add(2, { appId: 'other' });
  const same = made.slice(1, 5).sort().reverse();
  for (const limit of [1, 2, 3, 5, 6, 7])
    expect((await pagesOf({ appId, limit })).flat()).toEqual([made[5], ...same, made[0]]);
  expect((await pagesOf({ appId, limit: 3 })).map(({ length }) => length)).toEqual([3, 3]);
});

test('a state selects its tasks only, over pages', async () => {
  const appId = 'states';
  const failed: string[] = [];
  for (let second = 0; second < 9; second += 1) {
    const ticket = await add(second, { appId, status: second % 3 === 0 ? 'Failed' : 'Completed' });
    if (second % 3 === 0) failed.unshift(ticket);
  }
  expect(await pagesOf({ appId, status: 'Failed', limit: 2 })).toEqual([failed.slice(0, 2), failed.slice(2)]);
  expect((await list({ appId, status: 'Pending' })).tickets).toEqual([]);
});

test('a page has no more than 1 MiB, and at least one task', async () => {
  const appId = 'large';
  const made: string[] = [];
  for (const [second, size] of [400_000, 400_000, 400_000, 2_000_000, 10].entries())
    made.unshift(await add(second, { appId, resultText: JSON.stringify('x'.repeat(size)) }));
  expect(await pagesOf({ appId })).toEqual([[made[0]], [made[1]], made.slice(2, 4), [made[4]]]);
});

test('a request without an app, with an unknown state, a limit out of bounds or a foreign cursor is refused', async () => {
  const reasonOf = (request: object) => list(request).then(String, ({ reason }: { reason: string }) => reason);
  for (const request of [{ appId: '' }, { status: 'failed' }, { limit: 0 }, { limit: 1_001 }])
    expect([request, await reasonOf(request)]).toEqual([request, 'VALIDATION_FAILED']);
  for (const key of [[], ['1'], ['x', 'j7-a'], ['1', 'j7-a', 'b'], [1, 'j7-a'], ['-1', 'j7-a']]) {
    const cursor = Buffer.from(JSON.stringify(key)).toString('base64url');
    expect([key, await reasonOf({ cursor })]).toEqual([key, 'INVALID_CURSOR']);
  }
});
