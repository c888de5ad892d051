import { randomUUID } from 'node:crypto';
import { createPool, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { superuserUrl } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { size } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { Client } from 'pg';
import { openAccounts, readAccount } from '../src/ledger/accounts';
import type { Command, Result } from '../src/ledger/commands';
import { voidExpiredHolds } from '../src/ledger/expired-holds';
import { LedgerBatches } from '../src/ledger/ledger-batches';
import { listEntries } from '../src/ledger/statement';
import { transferId } from '@granary/shared/money/transfer-id';
import { financePool, log } from './support/harness';

let pool: Pool;
let url: string;
/** Two copies of the service on one database. */
let copies: LedgerBatches[];
beforeAll(async () => {
  ({ pool, url } = await financePool(8));
  copies = [0, 1].map(() => new LedgerBatches({ pool, log }));
});
afterAll(() => pool.end());

/** Fresh wallets with a balance, from a world of their own. */
async function wallets(count: number, balance: bigint): Promise<{ world: string; ids: string[] }> {
  const run = randomUUID();
  const world = `world:${run}`;
  const ids = Array.from({ length: count }, (_, at) => `app:${run}-${at}`);
  const opened = ids.map((id) => ({ id, unit: 'utia', mayOverdraw: false }));
  await openAccounts(pool, [{ id: world, unit: 'utia', mayOverdraw: true }, ...opened]);
  if (balance > 0n) await Promise.all(ids.map((id) => copies[0]!.apply([transfer(world, id, balance)])));
  return { world, ids };
}

const transfer = (debitAccount: string, creditAccount: string, amount: bigint, more: object = {}): Command => ({
  type: 'transfer',
  id: randomUUID(),
  debitAccount,
  creditAccount,
  amount,
  kind: 'spend',
  ref: '',
  ...more,
});
const hold = (debitAccount: string, creditAccount: string, amount: bigint, expiresAt?: Date): Command => ({
  type: 'hold',
  id: randomUUID(),
  debitAccount,
  creditAccount,
  amount,
  kind: 'spend',
  ref: '',
  ...(expiresAt && { expiresAt }),
});
const ending = (type: 'post' | 'void', holdId: string): Command => ({ type, id: randomUUID(), holdId, kind: 'spend' });

const nameOf = (result: Result): string => (result.outcome === 'refused' ? result.reason : result.outcome);
const names = (results: Result[][]): string[] => results.flat().map(nameOf);

/** How often each name occurs. */
function tally(list: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of list) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

async function available(id: string): Promise<bigint> {
  const { creditsPosted, debitsPosted, debitsPending } = await readAccount(pool, id);
  return creditsPosted - debitsPosted - debitsPending;
}

test('64 spenders of one wallet in two copies of the service never overdraw it', async () => {
  const { ids } = await wallets(2, 1_000n);
  const spend = (spender: number) => {
    const command = transfer(ids[0]!, ids[1]!, 7n);
    // Each is sent twice, as after an answer that was lost, to either copy.
    return Promise.all([copies[spender % 2]!.apply([command]), copies[(spender + 1) % 2]!.apply([command])]);
  };
  const seen: string[] = [];
  for (let round = 0; round < 10; round++) {
    const results = await Promise.all(Array.from({ length: 64 }, (_, spender) => spend(spender)));
    seen.push(...names(results.flat()));
  }
  expect(tally(seen)).toMatchObject({ created: 142, exists: 142 });
  expect(new Set(seen)).toEqual(new Set(['created', 'exists', 'INSUFFICIENT_FUNDS']));
  expect(await available(ids[0]!)).toBe(1_000n - 142n * 7n);
  expect(await available(ids[1]!)).toBe(1_000n + 142n * 7n);
});

test('many holds that 20 rivals each try to end have one winner each', async () => {
  const { ids } = await wallets(20, 1_000n);
  const count = size({ run: 100, long: 1_000 });
  const holds = Array.from({ length: count }, (_, at) => hold(ids[at % 10]!, ids[10 + (at % 10)]!, 5n));
  expect(new Set(names(await Promise.all(holds.map((each) => copies[0]!.apply([each])))))).toEqual(
    new Set(['created']),
  );
  const posted = new Map<string, bigint>();
  const winners = new Map<string, number>();
  await Promise.all(
    holds.flatMap(({ id }) =>
      Array.from({ length: 20 }, async (_, rival) => {
        const command = ending(rival % 2 === 0 ? 'post' : 'void', id);
        const [result] = await copies[rival % 4 < 2 ? 0 : 1]!.apply([command]);
        if (nameOf(result!) !== 'created') return expect(nameOf(result!)).toBe('HOLD_ENDED');
        winners.set(id, (winners.get(id) ?? 0) + 1);
        if (command.type === 'post') posted.set(id, 5n);
      }),
    ),
  );
  expect([...winners.values()]).toEqual(holds.map(() => 1));
  const spent = BigInt(posted.size) * 5n;
  const left = await Promise.all(ids.map(available));
  expect(left.slice(0, 10).reduce((sum, each) => sum + each)).toBe(10_000n - spent);
  expect(left.slice(10).reduce((sum, each) => sum + each)).toBe(10_000n + spent);
  const open = await row(pool, sql`select from open_hold where id = any(${holds.map(({ id }) => id)})`);
  expect(open).toBeUndefined();
});

test('a group is applied as a whole or not at all, and leaves the others of its batch alone', async () => {
  const { ids } = await wallets(3, 100n);
  const [a, b, c] = ids as [string, string, string];
  const ledger = copies[0]!;
  const split = [transfer(a, b, 80n), transfer(a, c, 20n)];
  const [whole, half, other] = await Promise.all([
    ledger.apply(split),
    // The second does not fit, so the first is undone.
    ledger.apply([transfer(b, c, 150n), transfer(b, c, 100n)]),
    ledger.apply([transfer(b, c, 180n)]),
  ]);
  expect(names([whole, half, other])).toEqual(['created', 'created', 'LINKED_FAILED', 'INSUFFICIENT_FUNDS', 'created']);
  expect(await Promise.all(ids.map(available))).toEqual([0n, 0n, 300n]);
  // Repeated as a whole it exists; with a part of it exchanged it is another group.
  expect(names([await ledger.apply(split)])).toEqual(['exists', 'exists']);
  expect(names([await ledger.apply([split[0]!, transfer(c, b, 1n)])])).toEqual(['TRANSFER_ID_TAKEN', 'LINKED_FAILED']);
  expect(await available(c)).toBe(300n);
});

test('"at most" moves what there is, even nothing, and repeated it answers what it moved then', async () => {
  const { ids } = await wallets(2, 30n);
  const [from, to] = ids as [string, string];
  const ledger = copies[0]!;
  const first = transfer(from, to, 50n, { atMost: true });
  const second = transfer(from, to, 50n, { atMost: true });
  expect(await ledger.apply([first])).toEqual([{ outcome: 'created', amount: 30n }]);
  expect(await ledger.apply([second])).toEqual([{ outcome: 'created', amount: 0n }]);
  await ledger.apply([transfer(to, from, 60n)]);
  expect(await ledger.apply([first])).toEqual([{ outcome: 'exists', amount: 30n }]);
  expect(await ledger.apply([second])).toEqual([{ outcome: 'exists', amount: 0n }]);
  expect(names([await ledger.apply([{ ...first, amount: 51n } as Command])])).toEqual(['TRANSFER_ID_TAKEN']);
});

test('a hold that has expired cannot be posted, and is voided', async () => {
  const { ids } = await wallets(2, 100n);
  const [from, to] = ids as [string, string];
  const ledger = copies[0]!;
  const later = hold(from, to, 10n, new Date(Date.now() + 3_600_000));
  let lastsMs = 0;
  // On a slow machine one may arrive after it would have expired: then another one lasts longer.
  const { soon, expiresAt } = await eventually(async () => {
    const now = (await row<{ now: Date }>(pool, sql`select clock_timestamp() as now`))!.now;
    const expiresAt = new Date(now.getTime() + (lastsMs += 700));
    const soon = hold(from, to, 60n, expiresAt);
    return nameOf((await ledger.apply([soon]))[0]!) === 'created' && { soon, expiresAt };
  });
  await ledger.apply([later]);
  const isOver = sql`select clock_timestamp() > ${expiresAt} as "isOver"`;
  await eventually(async () => (await row<{ isOver: boolean }>(pool, isOver))!.isOver);
  expect(names([await ledger.apply([ending('post', soon.id)])])).toEqual(['HOLD_EXPIRED']);
  expect(await available(from)).toBe(30n);
  // Two copies at once: the id of the void is given by the hold.
  await Promise.all(copies.map((each) => voidExpiredHolds(pool, each)));
  expect(await available(from)).toBe(90n);
  expect(await readAccount(pool, to)).toMatchObject({ creditsPending: 10n, creditsPosted: 100n });
  expect(names([await ledger.apply([ending('post', soon.id)])])).toEqual(['HOLD_ENDED']);
  expect(names([await ledger.apply([ending('post', later.id)])])).toEqual(['created']);
});

test('an id that two copies use at once for transfers between other accounts belongs to one of them', async () => {
  for (let round = 0; round < 50; round++) {
    const { ids } = await wallets(4, 10n);
    const id = randomUUID();
    const results = await Promise.all([
      copies[0]!.apply([transfer(ids[0]!, ids[1]!, 1n, { id })]),
      copies[1]!.apply([transfer(ids[2]!, ids[3]!, 1n, { id })]),
    ]);
    expect(names(results).sort()).toEqual(['TRANSFER_ID_TAKEN', 'created']);
    const sum = (await Promise.all([ids[1]!, ids[3]!].map(available))).reduce((a, b) => a + b);
    expect(sum).toBe(21n);
  }
});

test('what Postgres refuses unexpectedly fails alone, not with its batch', async () => {
  const { ids } = await wallets(2, 100n);
  await pool.query(`
    create function planted() returns trigger language plpgsql as $$
    begin if new.ref = 'planted' then raise exception 'planted' using errcode = 'XX001'; end if; return new; end $$;
    create trigger planted before insert on transfer for each row execute function planted()`);
  const commands = ['', 'planted', ''].map((ref) => transfer(ids[0]!, ids[1]!, 10n, { ref }));
  const settled = await Promise.allSettled(commands.map((each) => copies[0]!.apply([each])));
  await pool.query('drop trigger planted on transfer');
  expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  expect(await available(ids[0]!)).toBe(80n);
});

test('while connections are cut everywhere, each command is applied once and its result is definite', async () => {
  const { ids } = await wallets(2, 1_000_000n);
  const unlucky = createPool({ url, size: 4, applicationName: 'unlucky', log });
  const ledger = new LedgerBatches({ pool: unlucky, log, retryMs: limitMs(60_000) });
  const killer = new Client({ connectionString: superuserUrl() });
  await killer.connect();
  let answered = 0;
  let cuts = 0;
  let done = false;
  const cutting = (async () => {
    while (!done) {
      const cut = await killer.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'unlucky' and state = 'active'`,
      );
      if (!cut.rowCount) continue;
      cuts += cut.rowCount;
      const goal = answered + 20;
      await eventually(() => done || answered >= goal);
    }
  })();
  const writers = Array.from({ length: 40 }, async () => {
    const seen: string[] = [];
    // The killer finds a connection at work by chance only, so they go on until it has.
    for (let n = 0; n < 50 || cuts === 0; n++) {
      seen.push(...names([await ledger.apply([transfer(ids[0]!, ids[1]!, 1n)])]));
      answered++;
    }
    return seen;
  });
  const seen = (await Promise.all(writers).finally(() => (done = true))).flat();
  await cutting;
  await Promise.all([killer.end(), unlucky.end()]);
  expect(cuts).toBeGreaterThan(0);
  expect(new Set(seen)).not.toContain('INSUFFICIENT_FUNDS');
  expect(seen.length).toBeGreaterThanOrEqual(2_000);
  const moved = BigInt(seen.length);
  expect(await Promise.all(ids.map(available))).toEqual([1_000_000n - moved, 1_000_000n + moved]);
});

test('a hold that would have expired before our era is refused alone', async () => {
  const { ids } = await wallets(2, 100n);
  const commands = [new Date(-8.64e15), new Date(Date.now() + 60_000), new Date(8.64e15)];
  const results = await Promise.all(
    commands.map((expiresAt) => copies[0]!.apply([hold(ids[0]!, ids[1]!, 1n, expiresAt)])),
  );
  expect(names(results)).toEqual(['EXPIRY_PASSED', 'created', 'created']);
});

test('when Postgres stays away all that wait are answered together that the outcome is unknown, not one after the other', async () => {
  let calls = 0;
  const away = Object.assign(Object.create(pool) as Pool, {
    query: () => {
      calls++;
      return Promise.reject(Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }));
    },
  });
  const ledger = new LedgerBatches({ pool: away, log, retryMs: 0 });
  const settled = await Promise.allSettled(
    Array.from({ length: 5 }, () => ledger.apply([transfer('app:a', 'app:b', 1n)])),
  );
  const unknown = { status: 'rejected', reason: expect.objectContaining({ code: 'UNAVAILABLE' }) as unknown };
  expect(settled).toEqual(Array.from({ length: 5 }, () => unknown));
  expect(calls).toBeLessThan(5);
});

test('a statement read by its cursor beside writers misses no entry and shows none twice', async () => {
  const { ids } = await wallets(4, 1_000n);
  const account = ids[0]!;
  let done = false;
  const writing = Promise.all(
    Array.from({ length: 300 }, (_, at) => {
      const other = ids[1 + (at % 3)]!;
      return copies[at % 2]!.apply([at % 2 === 0 ? transfer(account, other, 1n) : transfer(other, account, 1n)]);
    }),
  ).finally(() => (done = true));
  const read: string[] = [];
  let after = 0n;
  for (let last = false; ;) {
    const entries = await listEntries(pool, account, { after, limit: 7 });
    read.push(...entries.map(({ id }) => id));
    after = entries.at(-1)?.number ?? after;
    if (entries.length > 0) continue;
    if (last) break;
    last = done;
    await new Promise((resolve) => setImmediate(resolve));
  }
  await writing;
  const stored = await rows<{ id: string }>(
    pool,
    sql`select id from transfer where debit_account = ${account} or credit_account = ${account} order by number`,
  );
  expect(read).toEqual(stored.map(({ id }) => id));
  expect(read).toHaveLength(301);
});

test('ids made from causes are UUIDs of version 8, the same for the same cause, in the order of time', () => {
  const at = new Date('2026-01-01T00:00:00.000Z');
  const id = transferId(at, 'retention', 'films/7/3');
  expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(transferId(at, 'retention', 'films/7/3')).toBe(id);
  const others = [
    transferId(at, 'payout', 'films/7/3'),
    transferId(at, 'retention', 'films/7/4'),
    transferId(new Date(at.getTime() + 1), 'retention', 'films/7/3'),
  ];
  expect(new Set([id, ...others]).size).toBe(4);
  expect(others[2]! > id).toBe(true);
});
