import { randomUUID } from 'node:crypto';
import { isConnectionError, isRetryable, isTimeout } from '@granary/shared/postgres/errors';
import { createPool, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { superuserUrl } from '@granary/testing/database';
import { Client } from 'pg';
import { eventually, eventuallyResolves } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { openAccounts, readAccount } from '../src/ledger/accounts';
import type { TransferCommand } from '../src/ledger/commands';
import { holdTransfer, postHold, postTransfer, voidHold, type Outcome } from './support/ledger';
import { financePool, log } from './support/harness';

let pool: Pool;
let url: string;
beforeAll(async () => {
  ({ pool, url } = await financePool(32));
});
afterAll(() => pool.end());

/** Fresh accounts, each with the same balance, that comes from a world of their own. */
async function accounts(count: number, balance: bigint): Promise<{ world: string; ids: string[] }> {
  const run = randomUUID();
  const world = `world-${run}`;
  const ids = Array.from({ length: count }, (_, at) => `app:${run}-${at}`);
  const wallets = ids.map((id) => ({ id, unit: 'utia', mayOverdraw: false }));
  await openAccounts(pool, [{ id: world, unit: 'utia', mayOverdraw: true }, ...wallets]);
  for (const id of ids) {
    if (balance > 0n) await postTransfer(pool, transfer(world, id, balance));
  }
  return { world, ids };
}

type Transfer = Omit<TransferCommand, 'type'>;

/**
 * Repeats a command with the same id while its outcome is unknown, as a caller must. On a slow machine some wait too
 * long for a lock, for a statement or for a new connection.
 */
async function untilDefinite(send: () => Promise<Outcome>): Promise<Outcome> {
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (!isTimeout(error) && !isRetryable(error) && !isConnectionError(error)) throw error;
    }
  }
}

function transfer(debitAccount: string, creditAccount: string, amount: bigint): Transfer {
  return { id: randomUUID(), debitAccount, creditAccount, amount, kind: 'test', ref: 'r' };
}

async function balance(id: string): Promise<bigint> {
  const { creditsPosted, debitsPosted } = await readAccount(pool, id);
  return creditsPosted - debitsPosted;
}

/** Starts work while its accounts are locked, and lets it go when many wait in Postgres: so they really meet. */
async function allAtOnce<T>(ids: string[], work: () => Array<Promise<T>>): Promise<Array<PromiseSettledResult<T>>> {
  const started = await transaction(pool, async (tx) => {
    await rows(tx, sql`select id from account where id = any(${ids}) for no key update`);
    const promises = Promise.allSettled(work());
    await eventuallyResolves(async () => {
      const waiting = await row<{ count: bigint }>(
        pool,
        sql`select count(*) as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      );
      expect(waiting!.count).toBeGreaterThanOrEqual(10n);
    });
    return { promises };
  });
  return started.promises;
}

const reasonOf = (result: PromiseSettledResult<unknown>): string =>
  result.status === 'fulfilled'
    ? String(result.value)
    : ((result.reason as { reason?: string }).reason ?? String(result.reason));

test('a transfer moves money once, however often it is sent', async () => {
  const { ids } = await accounts(2, 100n);
  const sent = transfer(ids[0]!, ids[1]!, 30n);
  const results = await allAtOnce(ids, () =>
    Array.from({ length: 20 }, () => untilDefinite(() => postTransfer(pool, sent))),
  );
  const outcomes = results.map(reasonOf);
  expect(outcomes.filter((outcome) => outcome === 'created')).toHaveLength(1);
  expect(outcomes.filter((outcome) => outcome === 'exists')).toHaveLength(19);
  expect([await balance(ids[0]!), await balance(ids[1]!)]).toEqual([70n, 130n]);
});

test('an id that was used for another transfer is refused and nothing changes', async () => {
  const { ids } = await accounts(3, 100n);
  const sent = transfer(ids[0]!, ids[1]!, 30n);
  await postTransfer(pool, sent);
  const others: Array<Partial<Transfer>> = [
    { amount: 31n },
    { debitAccount: ids[2]! },
    { creditAccount: ids[2]! },
    { kind: 'other' },
    { ref: 'other' },
  ];
  for (const other of others) {
    await expect(postTransfer(pool, { ...sent, ...other })).rejects.toMatchObject({ reason: 'TRANSFER_ID_TAKEN' });
  }
  await expect(holdTransfer(pool, sent)).rejects.toMatchObject({ reason: 'TRANSFER_ID_TAKEN' });
  expect(await Promise.all(ids.map(balance))).toEqual([70n, 130n, 100n]);
});

test('nothing is spent that is not there, and what is held back is not there', async () => {
  const { ids } = await accounts(2, 100n);
  const [from, to] = ids as [string, string];
  await expect(postTransfer(pool, transfer(from, to, 101n))).rejects.toMatchObject({ reason: 'INSUFFICIENT_FUNDS' });
  await holdTransfer(pool, transfer(from, to, 60n));
  await expect(postTransfer(pool, transfer(from, to, 41n))).rejects.toMatchObject({ reason: 'INSUFFICIENT_FUNDS' });
  await expect(holdTransfer(pool, transfer(from, to, 41n))).rejects.toMatchObject({ reason: 'INSUFFICIENT_FUNDS' });
  // What is on its way to an account cannot be spent either.
  await expect(postTransfer(pool, transfer(to, from, 101n))).rejects.toMatchObject({ reason: 'INSUFFICIENT_FUNDS' });
  await postTransfer(pool, transfer(from, to, 40n));
  expect(await readAccount(pool, from)).toEqual({
    debitsPending: 60n,
    debitsPosted: 40n,
    creditsPending: 0n,
    creditsPosted: 100n,
    payoutsPending: 0n,
    payoutsPosted: 0n,
  });
});

test('of many that spend the same money at once only as many succeed as it is enough for', async () => {
  const { ids } = await accounts(2, 100n);
  const spend = (_: unknown, at: number) => {
    const sent = transfer(ids[0]!, ids[1]!, 9n);
    return untilDefinite(() => (at % 2 === 0 ? postTransfer : holdTransfer)(pool, sent));
  };
  const reasons = (await allAtOnce(ids, () => Array.from({ length: 28 }, spend))).map(reasonOf);
  expect(reasons.filter((reason) => reason === 'created')).toHaveLength(11);
  expect(reasons.filter((reason) => reason === 'INSUFFICIENT_FUNDS')).toHaveLength(17);
});

const directions = seedOf('finance/ledger directions');
test(`32 writers in all directions, by the seed ${directions}: no money appears or is lost, and the counters are the sum of the transfers`, async () => {
  const { world, ids } = await accounts(6, 500n);
  const random = seededRandom(directions);
  const below = (limit: number) => Math.floor(random() * limit);
  const writer = async () => {
    const seen: string[] = [];
    for (let n = size({ run: 10, long: 30 }); n > 0; n--) {
      const from = below(ids.length);
      const to = (from + 1 + below(ids.length - 1)) % ids.length;
      const sent = transfer(ids[from]!, ids[to]!, BigInt(1 + below(200)));
      // Each is sent twice, as after an answer that was lost.
      const twice = [1, 2].map(() => untilDefinite(() => postTransfer(pool, sent)));
      const results = await Promise.allSettled(twice);
      seen.push(...results.map(reasonOf));
    }
    return seen;
  };
  const seen = (await Promise.all(Array.from({ length: 32 }, writer))).flat();
  expect(new Set(seen)).toEqual(new Set(['created', 'exists', 'INSUFFICIENT_FUNDS']));

  const all = [world, ...ids];
  const stored = await rows<{ debit: string; credit: string; amount: bigint }>(
    pool,
    sql`select debit_account as debit, credit_account as credit, amount from transfer where debit_account = any(${all})`,
  );
  expect(stored.length).toBe(seen.filter((outcome) => outcome === 'created').length + ids.length);
  for (const id of all) {
    const account = await readAccount(pool, id);
    const sum = (side: 'debit' | 'credit') =>
      stored.filter((each) => each[side] === id).reduce((total, { amount }) => total + amount, 0n);
    expect([account.debitsPosted, account.creditsPosted]).toEqual([sum('debit'), sum('credit')]);
    if (id !== world) expect(account.creditsPosted - account.debitsPosted).toBeGreaterThanOrEqual(0n);
  }
  const balances = await Promise.all(ids.map(balance));
  expect(balances.reduce((total, each) => total + each, 0n)).toBe(3_000n);
});

test('a connection that is cut leaves a doubt that the same id ends: nothing is lost and nothing doubled', async () => {
  const { ids } = await accounts(2, 1_000n);
  const patient = createPool({ url, size: 8, applicationName: 'patient', log });
  const killer = new Client({ connectionString: superuserUrl() });
  await killer.connect();
  let doubts = 0;
  let answered = 0;
  const insist = async (sent: Transfer): Promise<void> => {
    for (;;) {
      try {
        await postTransfer(patient, sent);
        answered++;
        return;
      } catch (error) {
        if (isConnectionError(error)) doubts++;
        else if (!isTimeout(error) && !isRetryable(error)) throw error;
      }
    }
  };
  let done = false;
  const cut = async () => {
    while (!done) {
      await killer.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where application_name = 'patient' order by random() limit 2`,
      );
      // On a fast machine connections would be cut faster than one can be made and used.
      const goal = answered + 3;
      await eventually(() => done || answered >= goal);
    }
  };
  const cutting = cut();
  const sent = Array.from({ length: 400 }, () => transfer(ids[0]!, ids[1]!, 1n));
  const writers = Array.from({ length: 8 }, async (_, at) => {
    for (const each of sent.slice(at * 50, at * 50 + 50)) await insist(each);
  });
  await Promise.all(writers).finally(() => (done = true));
  await cutting;
  await Promise.all([killer.end(), patient.end()]);
  expect(doubts).toBeGreaterThan(0);
  const stored = await row<{ count: bigint }>(
    pool,
    sql`select count(*) as count from transfer where id = any(${sent.map((each) => each.id)})`,
  );
  expect(stored!.count).toBe(400n);
  expect([await balance(ids[0]!), await balance(ids[1]!)]).toEqual([600n, 1_400n]);
});

test('a hold is ended by one of many that try at once, and the one that did may say so again', async () => {
  const { ids } = await accounts(2, 1_000n);
  for (let round = 0; round < 10; round++) {
    const hold = transfer(ids[0]!, ids[1]!, 10n);
    await holdTransfer(pool, hold);
    const attempts = Array.from({ length: 14 }, (_, at) => ({
      id: randomUUID(),
      holdId: hold.id,
      kind: hold.kind,
      post: at % 2 === 0,
    }));
    const end = ({ post, ...resolution }: (typeof attempts)[number]) =>
      untilDefinite(() => (post ? postHold(pool, resolution) : voidHold(pool, resolution)));
    // Everyone sends twice at once.
    const results = await allAtOnce(ids, () => [...attempts, ...attempts].map(end));
    const reasons = results.map(reasonOf);
    expect(reasons.filter((reason) => reason === 'created')).toHaveLength(1);
    expect(reasons.filter((reason) => reason === 'exists')).toHaveLength(1);
    expect(reasons.filter((reason) => reason === 'HOLD_ENDED')).toHaveLength(26);
    const winner = attempts[reasons.findIndex((reason) => reason === 'created' || reason === 'exists')]!;
    expect(await end(winner)).toBe('exists');
  }
  const [from, to] = await Promise.all(ids.map((id) => readAccount(pool, id)));
  expect([from!.debitsPending, to!.creditsPending]).toEqual([0n, 0n]);
  expect(from!.debitsPosted).toBe(to!.creditsPosted - 1_000n);
});

test('a part of a hold can be moved, the rest is free; never more than is held; what is paid out is counted apart', async () => {
  const { ids } = await accounts(2, 100n);
  const [from, to] = ids as [string, string];
  const hold = { ...transfer(from, to, 80n), kind: 'payout' };
  await holdTransfer(pool, hold);
  await expect(
    postHold(pool, { id: randomUUID(), holdId: hold.id, kind: 'payout', amount: 81n }),
  ).rejects.toMatchObject({
    reason: 'HOLD_EXCEEDED',
  });
  const resolution = { id: randomUUID(), holdId: hold.id, kind: 'payout', amount: 50n };
  expect(await postHold(pool, resolution)).toBe('created');
  const { amount: _, ...all } = resolution;
  for (const other of [{ ...all, amount: 51n }, all]) {
    await expect(postHold(pool, other)).rejects.toMatchObject({ reason: 'TRANSFER_ID_TAKEN' });
  }
  expect(await readAccount(pool, from)).toMatchObject({ debitsPending: 0n, debitsPosted: 50n, payoutsPosted: 50n });
  expect(await readAccount(pool, to)).toMatchObject({ creditsPending: 0n, creditsPosted: 150n });
  await expect(voidHold(pool, { id: randomUUID(), holdId: randomUUID(), kind: 'payout' })).rejects.toMatchObject({
    reason: 'HOLD_NOT_FOUND',
  });
  // What was posted at once is no hold.
  const posted = transfer(from, to, 1n);
  await postTransfer(pool, posted);
  await expect(voidHold(pool, { id: randomUUID(), holdId: posted.id, kind: 'test' })).rejects.toMatchObject({
    reason: 'HOLD_NOT_FOUND',
  });
});

test('amounts and accounts that make no sense are refused, and a balance stays within what JSON carries', async () => {
  const { world, ids } = await accounts(2, 0n);
  const [a] = ids as [string];
  for (const amount of [0n, -1n, 2n ** 53n]) {
    await expect(postTransfer(pool, transfer(world, a, amount))).rejects.toMatchObject({
      reason: 'AMOUNT_OUT_OF_RANGE',
    });
  }
  await expect(postTransfer(pool, transfer(world, 'app:nobody', 1n))).rejects.toMatchObject({
    reason: 'ACCOUNT_NOT_FOUND',
  });
  await expect(postTransfer(pool, transfer(a, a, 1n))).rejects.toMatchObject({ reason: 'SAME_ACCOUNT' });
  await postTransfer(pool, transfer(world, a, 2n ** 53n - 2n));
  await holdTransfer(pool, transfer(world, a, 1n));
  await expect(postTransfer(pool, transfer(world, a, 1n))).rejects.toMatchObject({ reason: 'AMOUNT_OUT_OF_RANGE' });
});

test('what is written in the ledger cannot be changed or removed, not even by its owner', async () => {
  const { ids } = await accounts(2, 100n);
  const writes = [
    'update transfer set amount = 1',
    'delete from transfer',
    'truncate transfer',
    'delete from account',
    'truncate account cascade',
  ];
  for (const text of writes) await expect(pool.query(text)).rejects.toMatchObject({ code: '42501' });
  // The owner can give himself the rights again; the triggers stay in the way.
  await pool.query('grant update, delete, truncate on transfer to current_user');
  await pool.query('grant delete, truncate on account to current_user');
  for (const text of writes) await expect(pool.query(text)).rejects.toMatchObject({ code: '23001' });
  const changes = [
    'credits_posted = 99',
    'debits_posted = -1',
    'payouts_posted = -1',
    'may_overdraw = true',
    `id = 'x'`,
    `unit = 'x'`,
    'created_at = now()',
  ];
  for (const change of changes) {
    await expect(pool.query(`update account set ${change} where id = $1`, [ids[0]])).rejects.toMatchObject({
      code: '23001',
    });
  }
  const kept = await row<{ count: bigint }>(
    pool,
    sql`select count(*) as count from transfer where credit_account = any(${ids})`,
  );
  expect(kept!.count).toBe(2n);
});
