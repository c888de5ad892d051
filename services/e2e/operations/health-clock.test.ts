import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { startPostgresProxy } from '@granary/testing/postgres-proxy';
import { send } from '../support/granary';
import { startGranaryHere } from '../support/own-granary';

const statusOf = async ({ url }: { url: string }): Promise<number> => (await send(url, 'GET', '/health')).status;

test('setting the clock back does not freeze the result of health', async () => {
  const proxy = await startPostgresProxy((await testDatabase()).url, () => 'pass');
  const granary = await startGranaryHere('direct', { databaseUrls: { data: proxy.url } });
  const clock = jest.spyOn(Date, 'now');
  try {
    expect(await statusOf(granary)).toBe(200);
    clock.mockImplementation(() => new Date().getTime() - 3_600_000);
    await proxy.stop();
    await eventually(async () => (await statusOf(granary)) === 503);
  } finally {
    clock.mockRestore();
    await granary.stop();
    await proxy.stop().catch(() => {});
  }
});
