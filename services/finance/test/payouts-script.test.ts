import { execFile } from 'node:child_process';
import { execute, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { postTransfer } from './support/ledger';
import { builtProgram } from '@granary/testing/programs';
import { transferId } from '@granary/shared/money/transfer-id';
import { advancePayouts } from '../src/payouts/payout-task';
import { reservePayouts } from '../src/payouts/reserve-payouts';
import { getWallet } from '../src/wallets/wallet';
import { financePool } from './support/harness';
import { newAddress, openPayoutBench, type PayoutBench } from './support/payout-copies';

let pool: Pool;
let url: string;
let bench: PayoutBench;
beforeEach(async () => {
  ({ pool, url } = await financePool(2));
  bench = await openPayoutBench(pool);
  await getWallet(bench.wallets, 'shop');
  const deposit = { id: transferId(new Date(0), 'deposit', 'shop'), kind: 'deposit', ref: '', amount: 100_000n };
  await postTransfer(pool, { ...deposit, debitAccount: bench.chainAccount, creditAccount: 'app:shop' });
  await bench.node.fund(bench.options.sender, 1_000_000n);
});
afterEach(() => pool.end());

interface Run {
  code: number;
  stdout: string;
  stderr: string;
}

async function runScript(options: string[] = [], DATABASE_URL: string | undefined = url): Promise<Run> {
  const args = [await builtProgram('operator'), 'payouts', ...options];
  const env = { ...process.env, DATABASE_URL };
  return new Promise((resolve) => {
    execFile(process.execPath, args, { env }, (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code) : 0, stdout, stderr });
    });
  });
}

async function reserve(): Promise<void> {
  const requests = [{ appId: 'shop', trigger: 'manual' as const, amount: 1_000n, destination: newAddress() }];
  await transaction(pool, (tx) => reservePayouts(tx, requests, { floorUtia: 1n, chainAccount: bench.chainAccount }));
}

/** A transaction that a node has refused for a reason that ought not to be. */
async function holdOne(): Promise<string> {
  const refusing = Object.assign(Object.create(bench.node) as typeof bench.node, {
    broadcast: () => Promise.resolve({ state: 'refused', codespace: 'sdk', code: 13 }),
  });
  await reserve();
  await advancePayouts(bench.options);
  await advancePayouts({ ...bench.options, chain: refusing });
  return (await row<{ hash: string }>(pool, sql`select hash from outgoing_transaction where state = 'held'`))!.hash;
}

async function rounds(count: number): Promise<void> {
  for (let at = 0; at < count; at++) {
    await advancePayouts(bench.options);
    await bench.node.produceBlock();
  }
}

test('without anything to decide it says so', async () => {
  expect(await runScript()).toEqual({
    code: 0,
    stdout:
      '0 transactions are held, 0 senders are stopped, 0 deleted applications have money without a destination.\n',
    stderr: '',
  });
});

test('it shows a held transaction, refuses to release it while a block may include it, and releases it then', async () => {
  const hash = await holdOne();
  const shown = await runScript();
  expect(shown.stdout).toContain(`held ${hash}: 1 payouts, 1000 utia, timeout height `);
  expect(shown.stdout).toContain('a node refused it with code 13 of sdk');
  expect(await runScript(['--release', hash])).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('a block could still include it') as string,
  });
  await rounds(40);
  expect((await runScript()).stdout).toMatch(/not found at height \d+/);
  expect(await runScript(['--release', hash])).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^0 transactions/) as string,
  });
  await rounds(6);
  expect(await rows(pool, sql`select status from payout`)).toEqual([{ status: 'confirmed' }]);
});

test('it shows stopped senders and lets them sign again', async () => {
  await reserve();
  await rounds(4);
  await execute(pool, sql`update chain_sender set stopped_because = 'somebody else signed'`);
  await reserve();
  await rounds(4);
  expect((await runScript()).stdout).toContain(`stopped ${bench.options.sender}: somebody else signed`);
  expect((await runScript(['--resume'])).stdout).toMatch(/^1 senders are resumed.\n0 transactions are held, 0 senders/);
  await rounds(6);
  expect(await rows(pool, sql`select status from payout`)).toEqual([{ status: 'confirmed' }, { status: 'confirmed' }]);
});

test('it names the apps whose automatic payouts are stopped', async () => {
  const destination = newAddress();
  await execute(
    pool,
    sql`update wallet set auto_payout_enabled = true, auto_payout_stopped = true, payout_destination = ${destination}`,
  );
  expect((await runScript()).stdout).toMatch(
    `automatic payouts of shop are stopped: the chain refuses ${destination}\n0 transactions are held`,
  );
});

test.each([
  ['a hash that no transaction has', ['--release', 'AB'], /No transaction with this hash is held/],
  ['an unknown option', ['--relase', 'AB'], /Unknown option '--relase'/],
])('%s is refused with a message and without a stack', async (_, options, message) => {
  const { code, stderr } = await runScript(options);
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(message) as string });
  expect(stderr).not.toMatch(/^ +at /m);
});

test('without DATABASE_URL it explains itself', async () => {
  expect(await runScript([], '')).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/^DATABASE_URL is not set\.\n\nShows the transactions/) as string,
  });
  expect((await runScript(['--help'], '')).stdout).toMatch(/npm run payouts -- --release HASH/);
});
