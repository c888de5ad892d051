import { randomUUID } from 'node:crypto';
import { ConfigError, readConfig } from '@granary/shared/config';
import { execute, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { financeConfig } from '../src/config';
import { openChain } from '../src/open-chain';
import { findDeduction, startDeduction } from '../src/grants/deductions';
import { openSimulatedNode, type SimulatedNode } from '../src/simulated-chain/simulated-node';
import { openKeyFile } from '../src/wallets/keys';
import { startStandIns, type StandIn } from './support/comet-stand-in';
import { call, financePool, log, startTestFinance, testSecret, type TestFinance } from './support/harness';
import { manualChain, newAddress } from './support/payout-copies';

let chainPool: Pool;
let node: SimulatedNode;
let nodes: StandIn[];
let finance: TestFinance;
let environment: Record<string, string>;
let settings: Record<string, string>;
beforeAll(async () => {
  ({ pool: chainPool } = await financePool(4));
  // Finance takes no simulated chain for a real one.
  await execute(chainPool, sql`insert into simulated_chain (chain_id, height, block_at) values ('mocha-5', 1, now())`);
  // A node counts as behind the others by five blocks, so these take longer where its answers do.
  const blockMs = Math.ceil(limitMs(100));
  node = await openSimulatedNode({ pool: chainPool, settings: { ...manualChain, blockMs } });
  nodes = await startStandIns(chainPool, node, 2);
  environment = {
    CHAIN: 'cosmos',
    CHAIN_ID: 'mocha-5',
    CHAIN_RPC_URLS: nodes.map(({ url }) => url).join(','),
    PAYOUT_FLOOR_UTIA: '1',
    CHAIN_RPC_TIMEOUT_MS: String(Math.min(limitMs(10_000), 60_000)),
  };
  settings = { DATABASE_URL: 'postgres://localhost/x', KEY_FILE: 'seed', INTERNAL_SECRET: testSecret, ...environment };
  finance = await startTestFinance(environment);
});
afterAll(async () => {
  await finance.stop();
  await Promise.all(nodes.map((each) => each.stop()));
  await chainPool.end();
});

const newApp = () => `a${randomUUID().slice(0, 8)}`;
const walletOf = (appId: string) => finance.client.getWallet({ appId }, call());
const chainHealth = async () => (await finance.health.check({}, call())).parts.find((part) => part.name === 'chain')!;

test('a deposit is credited and paid out, and health names the chain and its nodes', async () => {
  expect(await chainHealth()).toMatchObject({ status: 'HEALTHY', message: 'mocha-5, nodes: 2' });
  const appId = newApp();
  await node.fund((await walletOf(appId)).address, 70_000n);
  await eventually(async () => (await walletOf(appId)).balance === '70000');
  const payoutAddress = newAddress();
  await finance.client.triggerPayout({ appId, amount: '60000', payoutAddress }, call());
  await eventually(async () => (await node.balance(payoutAddress)) === 60_000n);
  await eventually(async () => (await walletOf(appId)).pendingPayouts === '0');
  expect(await walletOf(appId)).toMatchObject({ balance: '10000', availableBalance: '10000' });
});

test('a grant is registered once the chain has it, and what is deducted is taken by the broker', async () => {
  const address = newAddress();
  await node.fund(address, 90_000n);
  const expiresAt = new Date(Date.now() + 3_600_000);
  const create = () =>
    finance.client.createGrant(
      { address, limitUtia: '50000', allowedApps: [], expiresAt: expiresAt.toISOString() },
      call(),
    );
  const missing: unknown = await create().catch((error: unknown) => error);
  expect(missing).toMatchObject({
    reason: 'GRANT_MISSING',
    message: expect.stringContaining('there is none') as string,
  });
  const grantee = / to (celestia1[a-z0-9]+) /.exec((missing as Error).message)![1]!;
  const set = (spendLimit: bigint, until: Date) =>
    retriedTransaction(chainPool, (tx) => node.setGrant(tx, { spendLimit, expiresAt: until }, address, grantee));
  await set(49_999n, new Date(expiresAt.getTime() + 1_000));
  await expect(create()).rejects.toMatchObject({ message: expect.stringContaining('spend_limit is 49999') as string });
  await set(60_000n, new Date(expiresAt.getTime() - 5_000));
  await expect(create()).rejects.toMatchObject({ message: expect.stringContaining('it ends earlier') as string });
  await set(60_000n, new Date(expiresAt.getTime() + 1_000));
  const { grant } = await create();
  expect(grant).toMatchObject({ address, grantee, limitUtia: '50000', spentUtia: '0' });
  await node.fund(grantee, 1_000_000n);
  const recipient = newAddress();
  const id = randomUUID();
  const deduction = { id, grantId: grant!.grantId, appId: 'demo', operationType: 'read', collection: 'films' };
  const start = () => startDeduction(finance.pool, { ...deduction, amount: 30_000n, recipient });
  expect([await start(), await start()]).toEqual([undefined, undefined]);
  const found = await eventually(async () => {
    const each = await findDeduction(finance.pool, id);
    return each?.state === 'confirmed' && each;
  });
  expect(found).toMatchObject({ hash: expect.stringMatching(/^[0-9A-F]{64}$/) as string, reason: null });
  expect([await node.balance(recipient), await node.balance(address)]).toEqual([30_000n, 60_000n]);
  const again = (changes: object) =>
    startDeduction(finance.pool, { ...deduction, amount: 30_000n, recipient, ...changes });
  expect(await again({ id: randomUUID(), amount: 20_001n })).toBe('allowance_spent');
  for (const other of [{ amount: 1n }, { appId: 'other' }, { recipient: address }]) {
    expect(await again(other)).toBe('deduction_taken');
  }
});

test('what a grant does not let be sent to the recipient of a deduction is not taken', async () => {
  const address = newAddress();
  await node.fund(address, 90_000n);
  const create = () => finance.client.createGrant({ address, limitUtia: '50000', allowedApps: [] }, call());
  const missing = (await create().catch((error: unknown) => error)) as Error;
  const grantee = / to (celestia1[a-z0-9]+) /.exec(missing.message)![1]!;
  const until = new Date(Date.now() + 400 * 86_400_000);
  await retriedTransaction(chainPool, (tx) =>
    node.setGrant(tx, { spendLimit: 100_000n, expiresAt: until }, address, grantee),
  );
  await node.fund(grantee, 1_000_000n);
  const { grant } = await create();
  const [allowed, other] = [newAddress(), newAddress()];
  for (const { faults } of nodes) faults.allowList = [allowed];
  await expect(create()).rejects.toMatchObject({ message: expect.stringContaining('its allow_list lacks') as string });
  const deduct = async (recipient: string) => {
    const id = randomUUID();
    const paid = { appId: 'demo', operationType: 'read', collection: 'films', amount: 1_000n, recipient };
    expect(await startDeduction(finance.pool, { id, grantId: grant!.grantId, ...paid })).toBeUndefined();
    return eventually(async () => {
      const each = await findDeduction(finance.pool, id);
      return each !== undefined && each.state !== 'pending' && [each.state, each.reason];
    });
  };
  expect(await Promise.all([allowed, other].map(deduct))).toEqual([
    ['confirmed', null],
    ['failed', 'grant_revoked'],
  ]);
  for (const { faults } of nodes) delete faults.allowList;
  expect([await node.balance(allowed), await node.balance(other)]).toEqual([1_000n, 0n]);
});

test('a deduction of coins that vesting locks is refused before anything is sent', async () => {
  const address = newAddress();
  await node.fund(address, 5_000n);
  const create = () => finance.client.createGrant({ address, limitUtia: '5000', allowedApps: [] }, call());
  const grantee = / to (celestia1[a-z0-9]+) /.exec(
    ((await create().catch((error: unknown) => error)) as Error).message,
  )![1]!;
  await retriedTransaction(chainPool, (tx) =>
    node.setGrant(tx, { spendLimit: 5_000n, expiresAt: new Date(Date.now() + 400 * 86_400_000) }, address, grantee),
  );
  await node.fund(grantee, 1_000_000n);
  const { grant } = await create();
  for (const { faults } of nodes) faults.lockedUtia = { [address]: 4_000n };
  const deduct = async (amount: bigint) => {
    const id = randomUUID();
    const paid = { appId: 'demo', operationType: 'read', collection: 'films', amount, recipient: newAddress() };
    expect(await startDeduction(finance.pool, { id, grantId: grant!.grantId, ...paid })).toBeUndefined();
    return eventually(async () => {
      const each = await findDeduction(finance.pool, id);
      return each !== undefined && each.state !== 'pending' && [each.state, each.reason];
    });
  };
  expect([await deduct(1_001n), await deduct(1_000n)]).toEqual([
    ['failed', 'insufficient_funds'],
    ['confirmed', null],
  ]);
});

test('a grant is ended here whatever the chain says, and none is made while no node answers', async () => {
  const address = newAddress();
  const limits = { address, limitUtia: '50000', allowedApps: [] };
  const create = () => finance.client.createGrant(limits, call());
  const missing = (await create().catch((error: unknown) => error)) as Error;
  const grantee = / to (celestia1[a-z0-9]+) /.exec(missing.message)![1]!;
  const until = new Date(Date.now() + 400 * 86_400_000);
  await retriedTransaction(chainPool, (tx) =>
    node.setGrant(tx, { spendLimit: 100_000n, expiresAt: until }, address, grantee),
  );
  const [one, other] = [(await create()).grant!, (await create()).grant!];
  await retriedTransaction(chainPool, (tx) => node.setGrant(tx, undefined, address, grantee));
  for (const { faults } of nodes) faults.answer = 'unavailable';
  const { grant: revoked } = await finance.client.revokeGrant({ address, grantId: one.grantId }, call());
  await expect(create()).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  for (const { faults } of nodes) delete faults.answer;
  expect(revoked!.revokedAt).toEqual(expect.any(String));
  const { grants } = await finance.client.listGrants({ address }, call());
  expect(grants.map(({ grantId, revokedAt }) => [grantId, revokedAt !== undefined])).toEqual([
    [other.grantId, false],
    [one.grantId, true],
  ]);
});

test('a real chain has no faucet', async () => {
  await expect(finance.client.fundWallet({ appId: newApp(), amount: '5' }, call())).rejects.toMatchObject({
    reason: 'FAUCET_MISSING',
  });
});

test('a database belongs to one chain: finance starts with no other one, neither real nor simulated', async () => {
  await expect(finance.restart({ CHAIN_ID: 'mocha-4' })).rejects.toThrow(/chain mocha-5, but CHAIN_ID=mocha-4 is set/);
  await expect(finance.restart({ CHAIN: 'simulated' })).rejects.toThrow(/chain mocha-5, but CHAIN=simulated is set/);
  await finance.restart();
  expect(await chainHealth()).toMatchObject({ status: 'HEALTHY' });
});

test('money of the simulated chain is never that of a real one', async () => {
  const simulated = await startTestFinance();
  await expect(simulated.restart(environment)).rejects.toThrow(/chain granary-simulated-\w+, but CHAIN_ID=mocha-5/);
  await simulated.restart();
  await simulated.stop();
});

test('the first start needs a node that answers: deposits are read from its height on', async () => {
  const { pool } = await financePool(1);
  const config = readConfig(financeConfig, { ...settings, CHAIN_RPC_URLS: 'http://nowhere.invalid:26657' });
  const keys = await openKeyFile(finance.keyFile, { create: false });
  await expect(openChain(pool, keys, config, log)).rejects.toThrow(
    /^No node of CHAIN_RPC_URLS can be asked: node 1 does not answer/,
  );
  await pool.end();
});

test('finance starts while the nodes do not answer, and deposits go on when they do', async () => {
  for (const { faults } of nodes) faults.answer = 'unavailable';
  await finance.restart();
  expect(await chainHealth()).toMatchObject({
    status: 'DEGRADED',
    message: expect.stringMatching(/^mocha-5: no node can be asked/) as string,
  });
  for (const { faults } of nodes) delete faults.answer;
  const appId = newApp();
  await node.fund((await walletOf(appId)).address, 9n);
  await eventually(async () => (await walletOf(appId)).balance === '9');
  // A node that was too slow for a moment is not asked for a while.
  await eventually(async () => (await chainHealth())?.status === 'HEALTHY', 30_000);
});

test.each([
  ['CHAIN', 'bitcoin'],
  ['CHAIN_ID', ''],
  ['CHAIN_ID', 'a chain'],
  ['CHAIN_ID', 'granary-simulated-00000000'],
  ['CHAIN_RPC_URLS', ''],
  ['CHAIN_RPC_URLS', 'rpc.example:26657'],
  ['CHAIN_RPC_URLS', 'https://a.example,'],
  ['CHAIN_RPC_URLS', Array.from({ length: 11 }, (_, at) => `https://${at}.example`).join(',')],
  ['CHAIN_DENOM', 'u'],
  ['CHAIN_MEMO_BYTES_MAX', '-1'],
  ['CHAIN_RPC_TIMEOUT_MS', '99'],
])('%s may not be %j', (name, value) => {
  expect(() => readConfig(financeConfig, settings)).not.toThrow();
  const wrong = () => readConfig(financeConfig, { ...settings, [name]: value });
  expect(wrong).toThrow(ConfigError);
  expect(wrong).toThrow(new RegExp(` {2}${name}`));
});
