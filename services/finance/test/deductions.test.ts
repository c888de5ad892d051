import { randomUUID } from 'node:crypto';
import { addressOf } from '@granary/shared/money/cosmos/address';
import { execute, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { ChainGrants } from '../src/chain/chain-grants';
import type { Chain, FindResult } from '../src/chain/chain';
import { beginWatch, creditDeposits } from '../src/deposits/credit-deposits';
import { advanceDeductions, type DeductionSigning } from '../src/grants/deduction-task';
import { findDeduction, startDeduction } from '../src/grants/deductions';
import { chainGrantOf, createGrant, listGrants, type GrantOptions } from '../src/grants/grants';
import { transferFee } from '../src/outgoing/sign-next';
import { listHeld, releaseHeld } from '../src/payouts/held-transactions';
import { checkChain } from '../src/reconciliation/chain-checks';
import { storeDifferences, type Difference } from '../src/reconciliation/differences';
import { arePayoutsPaused } from '../src/payouts/pause';
import { simulatedGrants } from '../src/simulated-chain/simulated-grants';
import { financePool, log } from './support/harness';
import { gasPrice, newAddress, openPayoutBench, type PayoutBench } from './support/payout-copies';

const funds = 1_000_000n;
let pool: Pool;
let bench: PayoutBench;
let grants: ChainGrants;
let options: DeductionSigning;
let granting: GrantOptions;
const recipient = newAddress();
beforeEach(async () => {
  pool = (await financePool(4)).pool;
  bench = await openPayoutBench(pool);
  const { keys } = bench.options;
  const broker = addressOf(await keys.publicKey('broker'), 'celestia');
  grants = simulatedGrants(bench.node, broker);
  options = { ...bench.options, broker, grants };
  granting = { pool, prefix: 'celestia', chain: grants };
  await bench.node.fund(broker, funds);
});
afterEach(() => pool.end());

/** The grant of a new wallet with so much money. */
async function newGrant(balance: bigint, limitUtia = 100_000n) {
  const address = newAddress();
  if (balance > 0n) await bench.node.fund(address, balance);
  const onChain = await chainGrantOf(granting, address);
  const made = await retriedTransaction(pool, (tx) =>
    createGrant(tx, onChain, { address, limitUtia, allowedApps: [] }),
  );
  return made.grant;
}
async function deduct(grantId: string, amount: bigint): Promise<string> {
  const id = randomUUID();
  const paid = { appId: 'demo', operationType: 'read', collection: 'films', recipient };
  expect(await startDeduction(pool, { id, grantId, amount, ...paid })).toBeUndefined();
  return id;
}
const advance = (chain: Chain = bench.node) => advanceDeductions({ ...options, chain });
/** Steps and blocks until nothing is left that could be done. */
async function settle(chain?: Chain): Promise<void> {
  for (let round = 0; round < 20; round += 1) {
    await advance(chain);
    await bench.node.produceBlock();
  }
}
const endOf = async (id: string) => {
  const { state, reason } = (await findDeduction(pool, id))!;
  return [state, reason];
};
const sent = () => rows<{ state: string }>(pool, sql`select state from outgoing_transaction order by number`);
const spentOf = async (address: string) => (await listGrants(pool, address)).map(({ spentUtia }) => spentUtia);
const having = (calls: Partial<Chain>): Chain => Object.assign(Object.create(bench.node) as Chain, calls);

test('what is in a held transaction waits for another one when a person releases it', async () => {
  const { id: grantId } = await newGrant(10_000n);
  const id = await deduct(grantId, 1_000n);
  await advance();
  await advance(having({ broadcast: () => Promise.resolve({ state: 'refused', codespace: 'sdk', code: 13 }) }));
  const { hash } = (await row<{ hash: string }>(
    pool,
    sql`select hash from outgoing_transaction where state = 'held'`,
  ))!;
  expect(await listHeld(pool)).toEqual([
    expect.objectContaining({ hash, kind: 'deductions', count: 1n, amount: 1_000n }),
  ]);
  for (let round = 0; round < 40; round += 1) {
    await advance();
    await bench.node.produceBlock();
  }
  await releaseHeld(pool, hash);
  await settle();
  expect(await endOf(id)).toEqual(['confirmed', null]);
  expect(await bench.node.balance(recipient)).toBe(1_000n);
});

test('fifty deductions share a transaction, whose gas suffices for all', async () => {
  const { id: grantId } = await newGrant(100_000n);
  const ids = await Promise.all(Array.from({ length: 50 }, () => deduct(grantId, 1_000n)));
  await settle();
  expect(await Promise.all(ids.map(endOf))).toEqual(ids.map(() => ['confirmed', null]));
  expect(await sent()).toEqual([{ state: 'confirmed' }]);
});

test('a broker with too little money for all takes as many as it can pay for, and is short without the fee of one', async () => {
  const { id: grantId } = await newGrant(100_000n);
  const ids = await Promise.all(Array.from({ length: 5 }, () => deduct(grantId, 1_000n)));
  const shortage = { isShort: false };
  const withFunds = async (funds: bigint) => {
    await execute(pool, sql`update simulated_account set balance = ${funds} where address = ${options.broker}`);
    await advanceDeductions(options, shortage);
  };
  const fee = (recipients: number) => transferFee(recipients, gasPrice, true);
  await withFunds(fee(1) - 1n);
  expect([shortage, await sent()]).toEqual([{ isShort: true }, []]);
  await withFunds(fee(3) - 1n);
  await settle();
  expect(shortage).toEqual({ isShort: false });
  const ends = (await Promise.all(ids.map(endOf))).map(([state]) => state);
  expect(ends.filter((state) => state === 'confirmed')).toHaveLength(2);
  expect(await sent()).toEqual([{ state: 'confirmed' }]);
  await withFunds(fee(1) - 1n);
  expect(shortage).toEqual({ isShort: true });
  // Money that comes when nothing waits any more ends the shortage, too.
  await execute(pool, sql`update grant_deduction set state = 'failed' where state = 'pending'`);
  await withFunds(fee(1));
  expect(shortage).toEqual({ isShort: false });
});

/** What the checks of the blocks find that were not checked yet. */
async function checkBlocks() {
  while (await creditDeposits({ pool, chain: bench.node, chainAccount: bench.chainAccount, depthBlocks: 0, log }));
  const found: Difference[] = [];
  for (let part; (part = await checkChain(pool, bench.node)) !== undefined;) found.push(...part);
  return found;
}

test('a deduction that the chain lacks, or has with another amount, is a difference and pauses payouts', async () => {
  await beginWatch({ pool, chain: bench.node });
  const [one, other] = [await newGrant(50_000n), await newGrant(50_000n)];
  for (const { id } of [one, one, other]) await deduct(id, 1_000n);
  await settle();
  expect(await checkBlocks()).toEqual([]);
  expect(await sent()).toEqual([{ state: 'confirmed' }]);
  for (const { id } of [one, one, other]) await deduct(id, 2_000n);
  await settle();
  const { hash } = (await row<{ hash: string }>(
    pool,
    sql`select hash from outgoing_transaction order by number desc limit 1`,
  ))!;
  const transfer = (address: string) => sql`hash = ${hash} and sender = ${address}`;
  await execute(pool, sql`delete from simulated_transfer where ${transfer(other.address)}`);
  await execute(
    pool,
    sql`update simulated_transfer set amount = 2_001 where ${transfer(one.address)} and event_index =
          (select min(event_index) from simulated_transfer where ${transfer(one.address)})`,
  );
  const found = await checkBlocks();
  expect(found).toHaveLength(2);
  expect(found).toEqual(
    expect.arrayContaining([
      { kind: 'deduction', subject: `${hash}/${one.address}/${recipient}`, expected: 4_000n, found: 4_001n },
      { kind: 'deduction', subject: `${hash}/${other.address}/${recipient}`, expected: 2_000n, found: 0n },
    ]),
  );
  expect(await arePayoutsPaused(pool)).toBe(false);
  await storeDifferences(pool, found);
  expect(await arePayoutsPaused(pool)).toBe(true);
  // Each block is compared once.
  expect(await checkBlocks()).toEqual([]);
});

test('what a wallet cannot pay costs the broker nothing, and holds up nobody', async () => {
  const poor = await newGrant(2_500n);
  const rich = await newGrant(10_000n);
  const ids: string[] = [];
  for (let each = 0; each < 4; each += 1) ids.push(await deduct(poor.id, 1_000n));
  const ofRich = await deduct(rich.id, 4_000n);
  await settle();
  const lacking = ['failed', 'insufficient_funds'];
  expect(await Promise.all(ids.map(endOf))).toEqual([['confirmed', null], ['confirmed', null], lacking, lacking]);
  expect(await endOf(ofRich)).toEqual(['confirmed', null]);
  expect(await sent()).toEqual([{ state: 'confirmed' }]);
  expect([await spentOf(poor.address), await spentOf(rich.address)]).toEqual([[2_000n], [4_000n]]);
});

test('what comes while the chain is asked waits for the next transaction, and is looked at before', async () => {
  const [poor, rich] = [await newGrant(0n), await newGrant(10_000n)];
  const ofRich = await deduct(rich.id, 4_000n);
  let late: string | undefined;
  const allowance: ChainGrants['allowance'] = async (...asked) => {
    late ??= await deduct(poor.id, 1_000n);
    return grants.allowance(...asked);
  };
  await advanceDeductions({ ...options, grants: { ...grants, allowance } });
  await settle();
  expect([await endOf(ofRich), await endOf(late!)]).toEqual([
    ['confirmed', null],
    ['failed', 'insufficient_funds'],
  ]);
  expect(await sent()).toEqual([{ state: 'confirmed' }]);
});

test('what the wallet no longer allows on the chain is refused before anything is sent', async () => {
  const ended = await newGrant(10_000n);
  const reduced = await newGrant(10_000n);
  const [one, other] = [await deduct(ended.id, 1_000n), await deduct(reduced.id, 1_000n)];
  await retriedTransaction(pool, async (tx) => {
    await grants.reduce(tx, ended.address, undefined);
    await grants.reduce(tx, reduced.address, { amount: 999n, until: new Date(Date.now() + 3_600_000) });
  });
  await settle();
  expect([await endOf(one), await endOf(other)]).toEqual([
    ['failed', 'grant_revoked'],
    ['failed', 'allowance_spent'],
  ]);
  expect(await sent()).toEqual([]);
  expect([await spentOf(ended.address), await spentOf(reduced.address)]).toEqual([[0n], [0n]]);
});

test('a refusal is definite: the same deduction takes nothing when more is left of the grant, and is in no history', async () => {
  const { id: grantId, address } = await newGrant(10_000n, 1_000n);
  const other = await deduct(grantId, 600n);
  const asked = { grantId, amount: 500n, appId: 'demo', operationType: 'read', collection: 'films', recipient };
  const refused = { ...asked, id: randomUUID() };
  expect(await startDeduction(pool, refused)).toBe('allowance_spent');
  await retriedTransaction(pool, (tx) => grants.reduce(tx, address, undefined));
  await settle();
  expect([await endOf(other), await spentOf(address)]).toEqual([['failed', 'grant_revoked'], [0n]]);
  expect([await startDeduction(pool, refused), await startDeduction(pool, { ...refused, amount: 1n })]).toEqual([
    'allowance_spent',
    'deduction_taken',
  ]);
  expect([await endOf(refused.id), await spentOf(address)]).toEqual([['failed', 'allowance_spent'], [0n]]);
  // What failed later answers its reason, too.
  expect(await startDeduction(pool, { ...asked, amount: 600n, id: other })).toBe('grant_revoked');
  expect(await startDeduction(pool, { ...asked, id: randomUUID() })).toBeUndefined();
  expect(await spentOf(address)).toEqual([500n]);
  expect(await rows(pool, sql`select from authz_transaction`)).toEqual([]);
});

test('what has waited for more than ten minutes is never taken', async () => {
  const { id: grantId, address } = await newGrant(10_000n);
  const [late, recent] = [await deduct(grantId, 1_000n), await deduct(grantId, 2_000n)];
  const short = having({ balance: () => Promise.resolve(0n) });
  await settle(short);
  expect([await endOf(late), await endOf(recent)]).toEqual([
    ['pending', null],
    ['pending', null],
  ]);
  await execute(
    pool,
    sql`update grant_deduction set created_at = now() - interval '11 minutes' where id = ${late}::uuid`,
  );
  await settle();
  expect([await endOf(late), await endOf(recent)]).toEqual([
    ['failed', 'payment_expired'],
    ['confirmed', null],
  ]);
  expect([await spentOf(address), await bench.node.balance(address)]).toEqual([[2_000n], 8_000n]);
});

test.each([
  ['authz', 2, 'grant_revoked'],
  ['authz', 6, 'grant_expired'],
  ['sdk', 4, 'grant_revoked'],
  ['sdk', 5, 'insufficient_funds'],
  ['bank', 5, 'invalid_transaction_state'],
])('code %s %d of the chain is %s', async (codespace, code, reason) => {
  const { id: grantId, address } = await newGrant(10_000n);
  const id = await deduct(grantId, 1_000n);
  const failing = having({
    find: async (hash): Promise<FindResult> => {
      const found = await bench.node.find(hash);
      return found.state === 'included' ? { ...found, code, codespace, transfers: [] } : found;
    },
  });
  await settle(failing);
  expect(await endOf(id)).toEqual(['failed', reason]);
  expect(await spentOf(address)).toEqual([0n]);
});

test('a wallet whose deduction failed on the chain pays for nothing during the next hour', async () => {
  const [failing, other] = [await newGrant(10_000n), await newGrant(10_000n)];
  const failed = await deduct(failing.id, 1_000n);
  // The chain changes its mind after it was asked.
  await execute(pool, sql`update simulated_grant set spend_limit = 1 where granter = ${failing.address}`);
  const asked = () => Promise.resolve(10_000n);
  for (let round = 0; round < 5; round += 1) {
    await advanceDeductions({ ...options, grants: { spendable: asked, allowance: asked } });
    await bench.node.produceBlock();
  }
  expect(await endOf(failed)).toEqual(['failed', 'grant_revoked']);
  const start = (grantId: string, id: string = randomUUID()) =>
    startDeduction(pool, {
      id,
      grantId,
      amount: 1n,
      appId: 'demo',
      operationType: 'read',
      collection: 'films',
      recipient,
    });
  const refused = randomUUID();
  expect([await start(failing.id, refused), await start(other.id)]).toEqual(['wallet_refused', undefined]);
  expect(await spentOf(failing.address)).toEqual([0n]);
  await execute(
    pool,
    sql`update grant_deduction set updated_at = updated_at - interval '61 minutes' where id = ${failed}::uuid`,
  );
  // What was refused here, and never reached the chain, prevents nothing.
  expect([await start(failing.id), await start(failing.id, refused)]).toEqual([undefined, 'wallet_refused']);
});

test('the list of grants has each that is in force, whatever is over', async () => {
  const { id, address } = await newGrant(0n);
  await execute(
    pool,
    sql`insert into user_grant (id, address, key_hash, limit_utia, expires_at, created_at, revoked_at)
        select gen_random_uuid(), ${address}, sha256(n::text::bytea), 1, now() + interval '1 day', now() + n * interval '1 second', now()
        from generate_series(1, 200) n`,
  );
  const listed = await listGrants(pool, address);
  expect(listed.filter(({ revokedAt }) => revokedAt === null).map((grant) => grant.id)).toEqual([id]);
  const times = listed.map(({ createdAt }) => createdAt.getTime());
  expect(times).toEqual(times.toSorted((one, other) => other - one));
});
