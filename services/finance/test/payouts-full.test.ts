import { randomUUID } from 'node:crypto';
import type { ServiceError } from '@granary/shared/errors';
import { execute } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { renderMetrics } from '@granary/shared/telemetry/metrics';
import { eventually } from '@granary/testing/eventually';
import { call, startTestFinance, type TestFinance } from './support/harness';
import { newAddress } from './support/payout-copies';

let finance: TestFinance;
beforeAll(async () => {
  finance = await startTestFinance({ PAYOUT_FLOOR_UTIA: '1' });
});
afterAll(() => finance.stop());

test('while 10,000 payouts wait a trigger is refused as unavailable and changes nothing; with room it is accepted', async () => {
  const [app, other] = [`a${randomUUID().slice(0, 8)}`, `a${randomUUID().slice(0, 8)}`];
  for (const appId of [app, other]) await finance.client.fundWallet({ appId, amount: '100000' }, call());
  const wallet = (appId: string) => finance.client.getWallet({ appId }, call());
  await eventually(async () => (await wallet(app)).balance === '100000' && (await wallet(other)).balance === '100000');
  // Payouts are paused, so that they wait.
  await execute(
    finance.pool,
    sql`insert into difference (kind, subject, expected, found) values ('unit', 'utia', 0, 1)`,
  );
  await execute(
    finance.pool,
    sql`insert into payout (id, app_id, amount, destination, trigger, status, hold_id, created_at, updated_at)
        select gen_random_uuid(), ${other}, 1, ${newAddress()}, 'manual', 'pending', gen_random_uuid(), now(), now()
        from generate_series(1, 9999)`,
  );
  const trigger = () => finance.client.triggerPayout({ appId: app, amount: '10', payoutAddress: newAddress() }, call());
  expect((await trigger()).payout).toMatchObject({ status: 'pending' });
  await expect(trigger()).rejects.toMatchObject({ code: 'UNAVAILABLE' } satisfies Partial<ServiceError>);
  expect(await wallet(app)).toMatchObject({ pendingPayouts: '10', availableBalance: '99990' });
  expect(await renderMetrics()).toMatch(/^granary_payouts\{state="waiting"\} 10000$/m);
  await execute(
    finance.pool,
    sql`delete from payout where app_id = ${other} and id in (select id from payout where app_id = ${other} limit 1)`,
  );
  expect((await trigger()).payout).toMatchObject({ status: 'pending' });
});
