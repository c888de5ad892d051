import { randomBytes } from 'node:crypto';
import type { ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bech32 } from '@scure/base';
import { openAccounts } from '@granary/finance/ledger/accounts';
import { accountByName } from '@granary/finance/ledger/kinds';
import { postTransfer } from '../../finance/test/support/ledger';
import { transferId } from '@granary/shared/money/transfer-id';
import { reservePayouts } from '@granary/finance/payouts/reserve-payouts';
import { verifyLedger } from '@granary/finance/reconciliation/verify-ledger';
import { openSimulatedNode } from '@granary/finance/simulated-chain/simulated-node';
import { addressOf } from '@granary/shared/money/cosmos/address';
import { openKeyFile } from '@granary/finance/wallets/keys';
import { getWallet } from '@granary/finance/wallets/wallet';
import { createLogger } from '@granary/shared/logger';
import { migrate } from '@granary/shared/postgres/migrate';
import { createPool, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { endAllProcesses, endProcess, forkTracked } from '../support/own-process';
import type { PayingOrders } from './payout-process';

const kills = size({ run: 3, long: 300 });
const seed = seedOf('system/payout-crash');
const payoutCount = kills * 200;
const amount = 10_000n;
const settings = {
  prefix: 'celestia',
  denom: 'utia',
  gasPrice: 0.004,
  blockMs: 20,
  memoBytesMax: 256,
  loss: 0.1,
  eviction: 0.1,
  delayBlocks: 3,
  answerLoss: 0.1,
  indexLagBlocks: 3,
};

let directory: string;
let orders: PayingOrders;
let pool: Pool;
let hotWallet: string;
let chainAccount: string;
beforeAll(async () => {
  const log = createLogger('test', 'silent');
  directory = await mkdtemp(join(tmpdir(), 'granary-payouts-'));
  const [{ url }, keyFile] = [await testDatabase(), join(directory, 'seed')];
  orders = { url, keyFile, settings, timeoutBlocks: 10 };
  pool = createPool({ url, size: 4, applicationName: 'test', log });
  await migrate(pool, join(__dirname, '..', '..', 'finance', 'migrations'));
  const keys = await openKeyFile(keyFile, { create: true });
  hotWallet = addressOf(await keys.publicKey('hot'), settings.prefix);
  const funds = amount * BigInt(payoutCount);
  const node = await openSimulatedNode({ pool, settings, genesis: { address: hotWallet, amount: funds * 2n } });
  chainAccount = `chain:${node.id}`;
  await openAccounts(pool, [accountByName(chainAccount)!, accountByName('platform:cost')!]);
  await getWallet({ pool, keys, addressPrefix: settings.prefix }, 'shop');
  const deposit = { id: transferId(new Date(0), 'deposit', 'shop'), kind: 'deposit', ref: '' };
  await postTransfer(pool, { ...deposit, debitAccount: chainAccount, creditAccount: 'app:shop', amount: funds });
});
afterAll(async () => {
  await endAllProcesses();
  await pool?.end();
  await rm(directory, { recursive: true, force: true });
});

async function startPaying(): Promise<ChildProcess> {
  const child = await forkTracked(join(__dirname, 'payout-process.ts'));
  child.send(orders);
  return child;
}

const newAddress = () => bech32.encode(settings.prefix, bech32.toWords(randomBytes(20)));

async function reserve(count: number): Promise<void> {
  const requests = Array.from({ length: count }, () => ({
    appId: 'shop',
    trigger: 'manual' as const,
    amount,
    destination: newAddress(),
  }));
  await transaction(pool, (tx) => reservePayouts(tx, requests, { floorUtia: 1n, chainAccount }));
}

const countFinal = async () =>
  Number((await row<{ count: bigint }>(pool, sql`select count(*) from payout where status = 'confirmed'`))!.count);

test(`${payoutCount} payouts by two processes, of which one is killed ${kills} times by the seed ${seed}: each is paid once`, async () => {
  const random = seededRandom(seed);
  const processes = [await startPaying(), await startPaying()];
  for (let kill = 0; kill < kills; kill++) {
    await reserve(200);
    // In the midst of a transaction, at whatever step.
    const paid = (kill + random()) * 150;
    await eventually(async () => (await countFinal()) > paid);
    await endProcess(processes[kill % 2]!, 'SIGKILL');
    processes[kill % 2] = await startPaying();
  }
  await eventually(async () => (await countFinal()) === payoutCount, 300_000);

  const wrong = await rows(
    pool,
    sql`select destination, count(recipient), sum(t.amount)::text as received
        from payout left join simulated_transfer t on t.recipient = destination and t.sender = ${hotWallet}
        group by destination having count(recipient) <> 1 or sum(t.amount) <> ${amount}`,
  );
  expect(wrong).toEqual([]);
  const sent = await row(pool, sql`select count(*) from simulated_transfer where sender = ${hotWallet}`);
  expect(sent).toEqual({ count: BigInt(payoutCount) });
  const sequences = await rows<{ sequence: bigint }>(
    pool,
    sql`select sequence from outgoing_transaction where state <> 'expired' order by sequence`,
  );
  expect(sequences.map(({ sequence }) => sequence)).toEqual(sequences.map((_, at) => BigInt(at)));
  expect((await verifyLedger(pool, () => undefined)).differences).toEqual([]);
  expect(await row(pool, sql`select count(*) from open_hold`)).toEqual({ count: 0n });
});
