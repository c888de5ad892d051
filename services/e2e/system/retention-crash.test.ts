import { randomUUID } from 'node:crypto';
import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { openAccounts } from '@granary/finance/ledger/accounts';
import { walletAccount } from '@granary/finance/ledger/kinds';
import { postTransfer } from '../../finance/test/support/ledger';
import { createLogger } from '@granary/shared/logger';
import { migrate } from '@granary/shared/postgres/migrate';
import { createPool, execute, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { endAllProcesses, endProcess, forkTracked } from '../support/own-process';
import type { ChargingOrders } from './retention-process';

const log = createLogger('test', 'silent');
const kills = size({ run: 3, long: 200 });
const seed = seedOf('system/retention-crash');
const apps = Array.from({ length: 20 }, (_, at) => `app-${at}`);
const collections = size({ run: 300, long: 10_000 });
const periods = 12;
const utiaPerGibDay = 777n;
const deposit = 1_000_000_000n;
const beganMs = Date.UTC(2026, 0, 1);
const dayMs = 86_400_000;

let pool: Pool;
let url: string;
beforeAll(async () => {
  ({ url } = await testDatabase());
  pool = createPool({ url, size: 4, applicationName: 'test', log });
  await migrate(pool, join(__dirname, '..', '..', 'finance', 'migrations'));
});
afterAll(async () => {
  await endAllProcesses();
  await pool?.end();
});

/** Collections of all apps that hold the same since they began, and wallets that can pay for them. */
async function prepare(sizes: readonly bigint[]): Promise<void> {
  const wallets = apps.map((app) => ({ id: walletAccount(app), unit: 'utia', mayOverdraw: false }));
  await openAccounts(pool, [
    { id: 'chain:test', unit: 'utia', mayOverdraw: true },
    { id: 'platform:fees', unit: 'utia', mayOverdraw: false },
    ...wallets,
  ]);
  for (const { id: creditAccount } of wallets) {
    const gift = { debitAccount: 'chain:test', creditAccount, amount: deposit, kind: 'deposit', ref: '' };
    await postTransfer(pool, { id: randomUUID(), ...gift });
  }
  const began = new Date(beganMs);
  await execute(
    pool,
    sql`insert into collection_generation (app_id, collection, number, document_count, data_bytes, data_at, blob_bytes,
          blob_at, blob_ahead, began_at, accrued, next_charge_at)
        select (${apps}::text[])[1 + at % ${apps.length}], 'c' || at, at, 1, bytes, ${began}, 0, to_timestamp(0), '[]',
          ${began}, 0, ${began}::timestamptz + interval '720 hours'
        from unnest(${sizes.map(String)}::bigint[]) with ordinality size(bytes, at)`,
  );
}

async function startCharging(): Promise<ChildProcess> {
  const child = await forkTracked(join(__dirname, 'retention-process.ts'));
  const nowMs = beganMs + (30 * periods + 1) * dayMs;
  child.send({ url, utiaPerGibDay: utiaPerGibDay.toString(), nowMs } satisfies ChargingOrders);
  return child;
}

const countCharges = async () => (await row<{ n: bigint }>(pool, sql`select count(*) as n from retention_charge`))!.n;
const isAlive = (child: ChildProcess) => child.exitCode === null && child.signalCode === null;

test(`two processes charge ${periods} periods of ${collections} collections, killed ${kills} times by the seed ${seed}: each period once, the exact sum`, async () => {
  const random = seededRandom(seed);
  const sizes = Array.from({ length: collections }, () => 1n + BigInt(Math.floor(random() * 2 ** 31)));
  await prepare(sizes);
  // The first period is free.
  const total = collections * (periods - 1);
  const copies = [await startCharging(), await startCharging()];
  for (let kill = 0; kill < kills; kill++) {
    const reached = BigInt(Math.floor(((kill + random()) * total) / kills));
    await eventually(async () => (await countCharges()) >= reached || !copies.some(isAlive), 120_000);
    await endProcess(copies[kill % 2]!, 'SIGKILL');
    copies[kill % 2] = await startCharging();
  }
  await eventually(() => !copies.some(isAlive), 120_000);

  const expected = new Map(apps.map((app) => [app, deposit]));
  const unitsPerUtia = 2n ** 30n * BigInt(dayMs);
  for (const [at, bytes] of sizes.entries()) {
    const app = apps[(at + 1) % apps.length]!;
    const cost = (bytes * BigInt(30 * (periods - 1) * dayMs) * utiaPerGibDay) / unitsPerUtia;
    expected.set(app, expected.get(app)! - cost);
  }
  const left = await rows<{ id: string; left: bigint }>(
    pool,
    sql`select id, credits_posted - debits_posted as left from account where id like 'app:%'`,
  );
  expect(new Map(left.map(({ id, left: amount }) => [id.slice('app:'.length), amount]))).toEqual(expected);
  const sums = await row(
    pool,
    sql`select (select sum(debits_posted - credits_posted) from account)::bigint as books,
          (select sum(amount) from transfer where kind = 'retention')::bigint - (select sum(moved) from retention_charge)::bigint as charges,
          (select count(*) from collection_generation where charged_periods <> ${periods}) as behind`,
  );
  expect(sums).toEqual({ books: 0n, charges: 0n, behind: 0n });
});
