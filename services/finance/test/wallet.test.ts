import { randomUUID } from 'node:crypto';
import { chmod, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { execute, row } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { size } from '@granary/testing/size';
import { openKeyFile } from '../src/wallets/keys';
import { openAccounts } from '../src/ledger/accounts';
import { holdTransfer, postTransfer } from './support/ledger';
import { call, startTestFinance, type TestFinance } from './support/harness';

const newApp = () => `a${randomUUID().slice(0, 13)}`;

describe('the key file', () => {
  const fresh = async () => join(await mkdtemp(join(tmpdir(), 'granary-keys-')), 'deeper', 'seed');

  test('it is made once, whole, for its owner alone, however many start at once', async () => {
    const path = await fresh();
    const opened = await Promise.all(Array.from({ length: 20 }, () => openKeyFile(path, { create: true })));
    expect(new Set(opened.map((keys) => keys.fingerprint)).size).toBe(1);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await readFile(path, 'utf8')).trim().split(' ')).toHaveLength(24);
    expect(await readdir(dirname(path))).toEqual(['seed']);
  });

  test('one that others may read, one that holds something else and one that is missing are refused', async () => {
    const path = await fresh();
    await expect(openKeyFile(path, { create: false })).rejects.toThrow(/cannot be read/);
    await openKeyFile(path, { create: true });
    for (const mode of [0o644, 0o640, 0o604, 0o620]) {
      await chmod(path, mode);
      await expect(openKeyFile(path, { create: true })).rejects.toThrow(/open to others/);
    }
    await chmod(path, 0o600);
    await writeFile(path, `${'abandon '.repeat(12)}\n`);
    await expect(openKeyFile(path, { create: true })).rejects.toThrow(/does not hold/);
  });

  test('a group may read a mounted secret, which belongs to another user, and nothing more', async () => {
    const path = await fresh();
    const { fingerprint } = await openKeyFile(path, { create: true });
    const mounted = { create: false, userId: (await stat(path)).uid + 1 };
    for (const mode of [0o440, 0o640, 0o400]) {
      await chmod(path, mode);
      expect((await openKeyFile(path, mounted)).fingerprint).toBe(fingerprint);
    }
    for (const mode of [0o460, 0o450, 0o444, 0o404]) {
      await chmod(path, mode);
      await expect(openKeyFile(path, mounted)).rejects.toThrow(/open to others/);
    }
  });

  test('another seed has another fingerprint, and the fingerprint is not the seed', async () => {
    const [path, other] = [await fresh(), await fresh()];
    const keys = await openKeyFile(path, { create: true });
    expect((await openKeyFile(path, { create: false })).fingerprint).toBe(keys.fingerprint);
    expect((await openKeyFile(other, { create: true })).fingerprint).not.toBe(keys.fingerprint);
    expect(await keys.publicKey({ wallet: 0 })).toHaveLength(33);
    expect(await keys.publicKey({ wallet: 1 })).not.toEqual(await keys.publicKey({ wallet: 0 }));
  });
});

describe('wallets', () => {
  let finance: TestFinance;
  beforeAll(async () => {
    finance = await startTestFinance();
  });
  afterAll(() => finance.stop());

  test('a wallet is made at its first use, once, with an address of its own that stays', async () => {
    const app = newApp();
    const seen = await Promise.all(Array.from({ length: 40 }, () => finance.client.getWallet({ appId: app }, call())));
    const { address } = seen[0]!;
    expect(new Set(seen.map((wallet) => wallet.address)).size).toBe(1);
    expect(address).toMatch(/^celestia1[0-9a-z]{38}$/);
    expect(seen[0]).toMatchObject({
      appId: app,
      balance: '0',
      lockedBalance: '0',
      pendingPayouts: '0',
      availableBalance: '0',
      totalEarned: '0',
      totalSpent: '0',
      totalPaidOut: '0',
    });
    const other = await finance.client.getWallet({ appId: newApp() }, call());
    expect(other.address).not.toBe(address);
    await finance.restart();
    expect((await finance.client.getWallet({ appId: app }, call())).address).toBe(address);
  });

  test('of many that see a new wallet first none fails, in any of many races', async () => {
    for (let races = size({ run: 20, long: 200 }); races > 0; races--) {
      const app = newApp();
      const look = () => finance.client.getWallet({ appId: app }, call());
      const seen = await Promise.all(Array.from({ length: 12 }, look));
      expect(new Set(seen.map(({ address }) => address)).size).toBe(1);
    }
  });

  test('the balance is what the ledger says, and what is held or locked is not available', async () => {
    const app = newApp();
    const account = `app:${app}`;
    const { pool } = finance;
    await finance.client.getWallet({ appId: app }, call());
    await openAccounts(pool, [{ id: 'world', unit: 'utia', mayOverdraw: true }]);
    const pay = (debitAccount: string, creditAccount: string, amount: bigint, kind: string) => ({
      id: randomUUID(),
      debitAccount,
      creditAccount,
      amount,
      kind,
      ref: '',
    });
    await postTransfer(pool, pay('world', account, 9_007_199_254_740_991n, 'earning'));
    await postTransfer(pool, pay(account, 'world', 1_000n, 'retention'));
    await postTransfer(pool, pay(account, 'world', 300n, 'payout'));
    await holdTransfer(pool, pay(account, 'world', 50n, 'payout'));
    // Of all holds only those for payouts are pending payouts; another one lowers the balance.
    await holdTransfer(pool, pay(account, 'world', 20n, 'spend'));
    await finance.client.updatePayoutSettings({ appId: app, lockedBalance: '7' }, call());
    const figures = {
      balance: '9007199254739671',
      lockedBalance: '7',
      pendingPayouts: '50',
      availableBalance: '9007199254739614',
    };
    const totals = { totalEarned: '9007199254740991', totalSpent: '1000', totalPaidOut: '300' };
    const wallet = await finance.client.getWallet({ appId: app }, call());
    expect(wallet).toMatchObject({ ...figures, ...totals });
    expect(await finance.client.getPayoutInfo({ appId: app }, call())).toMatchObject(figures);

    await finance.client.updatePayoutSettings({ appId: app, lockedBalance: '9007199254740991' }, call());
    expect(await finance.client.getWallet({ appId: app }, call())).toMatchObject({ availableBalance: '0' });
  });

  test('an address can be neither changed nor moved to another application', async () => {
    const app = newApp();
    await finance.client.getWallet({ appId: app }, call());
    for (const change of [`address = 'x'`, `app_id = 'x'`, 'address_index = 99999']) {
      await expect(finance.pool.query(`update wallet set ${change} where app_id = $1`, [app])).rejects.toMatchObject({
        code: '23001',
      });
    }
  });

  test('something that is no name of an application makes no wallet', async () => {
    for (const appId of ['', 'a b', 'x'.repeat(64), '../x']) {
      await expect(finance.client.getWallet({ appId }, call())).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    }
  });
});

test('a seed is only made where the settings say that it is kept', async () => {
  const KEY_FILE = join(await mkdtemp(join(tmpdir(), 'granary-keys-')), 'seed');
  const started = startTestFinance({ KEY_FILE, KEY_FILE_CREATE: 'false' });
  await expect(started).rejects.toThrow(/make one by the command seed, or set KEY_FILE_CREATE=true/);
  await expect(stat(KEY_FILE)).rejects.toThrow('ENOENT');
});

describe('the seed of a database', () => {
  let finance: TestFinance;
  beforeEach(async () => {
    finance = await startTestFinance();
  });
  afterEach(() => finance.stop());

  test('a start with another seed is refused, and with the right one all is as before', async () => {
    const app = newApp();
    const { address } = await finance.client.getWallet({ appId: app }, call());
    const other = join(await mkdtemp(join(tmpdir(), 'granary-keys-')), 'seed');
    await openKeyFile(other, { create: true });
    await expect(finance.restart({ KEY_FILE: other })).rejects.toThrow(/another seed than the one/);
    await finance.restart();
    expect((await finance.client.getWallet({ appId: app }, call())).address).toBe(address);
  });

  test('a seed that was lost is not replaced by a new one', async () => {
    await rename(finance.keyFile, `${finance.keyFile}.away`);
    await expect(finance.restart()).rejects.toThrow(/cannot be read: the wallets of this database were made from it/);
    expect(await readdir(dirname(finance.keyFile))).toEqual(['seed.away']);
    await rename(`${finance.keyFile}.away`, finance.keyFile);
    await finance.restart();
    await rm(dirname(finance.keyFile), { recursive: true });
  });

  test('the prefix of addresses cannot be changed', async () => {
    await expect(finance.restart({ ADDRESS_PREFIX: 'cosmos' })).rejects.toThrow(/ADDRESS_PREFIX cannot be changed/);
  });

  test('what is kept of the seed in the database gives nothing of it away', async () => {
    const words = (await readFile(finance.keyFile, 'utf8')).trim();
    const origin = await row<{ text: string }>(
      finance.pool,
      sql`select wallet_origin::text as text from wallet_origin`,
    );
    expect(origin!.text).toMatch(/[0-9a-f]{32}/);
    for (const word of words.split(' ')) expect(origin!.text).not.toContain(` ${word} `);
    expect(await execute(finance.pool, sql`select from wallet_origin`)).toBe(1);
  });
});
