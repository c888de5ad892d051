import { randomUUID } from 'node:crypto';
import type { Command } from '@granary/shared/gen/granary/finance/v1/Command';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import { openClient, type Target } from '@granary/shared/grpc/client';
import type { Client } from '@granary/shared/rpc/types';
import type { ServiceName } from '@granary/shared/trust/services';
import { openTrust } from '@granary/shared/trust/trust';
import { eventually, eventuallyHolds } from '@granary/testing/eventually';
import { ledgerDefinition } from '../src/service';
import { call, log, startTestFinance, testSecret, type TestFinance } from './support/harness';

let finance: TestFinance;
let payments: Client<LedgerDefinition>;
const closes: Array<() => void> = [];

function clientOf(caller: ServiceName): Client<LedgerDefinition> {
  const trust = openTrust(caller, { INTERNAL_SECRET: testSecret }, log);
  const target: Target<LedgerDefinition> = { address: finance.address() };
  const opened = openClient(ledgerDefinition, target, { log, credentials: () => trust.towards('finance') });
  closes.push(() => opened.close());
  return opened.client;
}

beforeAll(async () => {
  finance = await startTestFinance();
  payments = clientOf('payments');
});
afterAll(async () => {
  for (const close of closes) close();
  await finance.stop();
});

const newApp = (): string => `app-${randomUUID().slice(0, 8)}`;
const movement = (debitAccount: string, creditAccount: string, amount: number, more: object = {}) => ({
  debitAccount,
  creditAccount,
  amount: String(amount),
  ref: 'q',
  atMost: false,
  expiresAtMs: '0',
  ...more,
});
const transfer = (kind: string, ...[debit, credit, amount, more]: Parameters<typeof movement>): Command => ({
  id: randomUUID(),
  kind,
  transfer: movement(debit, credit, amount, more),
});

/** The results of groups, by name. */
async function apply(...groups: Command[][]): Promise<string[][]> {
  const answer = await payments.apply({ groups: groups.map((commands) => ({ commands })) }, call());
  return answer.groups.map(({ results }) => results.map(({ outcome, reason }) => reason || outcome));
}

/** An application that has earned so much. */
async function appWith(amount: number): Promise<string> {
  const app = newApp();
  expect(await apply([transfer('income', 'rates', `app:${app}`, amount)])).toEqual([['created']]);
  return app;
}

const balanceOf = async (app: string): Promise<string> =>
  (await finance.client.getWallet({ appId: app }, call())).balance;

test('payments splits a payment between an application and the platform in one group, and repeats it harmlessly', async () => {
  const [payer, seller] = [await appWith(1_000), newApp()];
  const key = randomUUID();
  await apply([transfer('allowance', 'allowance:issued', `allowance:${key}`, 150)]);
  const purchase = (amount: number): Command[] => [
    transfer('spend', `app:${payer}`, `app:${seller}`, amount * 0.8),
    transfer('spend_share', `app:${payer}`, 'platform:fees', amount * 0.2),
    transfer('allowance_spend', `allowance:${key}`, 'allowance:issued', amount),
  ];
  const first = purchase(100);
  expect(await apply(first, first)).toEqual([
    ['created', 'created', 'created'],
    ['exists', 'exists', 'exists'],
  ]);
  expect([await balanceOf(payer), await balanceOf(seller)]).toEqual(['900', '80']);
  // The key has 50 left to spend, whatever the wallet has.
  expect(await apply(purchase(60))).toEqual([['LINKED_FAILED', 'LINKED_FAILED', 'INSUFFICIENT_FUNDS']]);
  expect(await apply(purchase(50))).toEqual([['created', 'created', 'created']]);
  expect([await balanceOf(payer), await balanceOf(seller)]).toEqual(['850', '120']);
});

test('a command that is refused is so alone, and changes nothing', async () => {
  const [a, b] = [await appWith(100), await appWith(100)];
  const spend = (amount: number, more: object = {}) => ({
    ...transfer('spend', `app:${a}`, `app:${b}`, amount),
    ...more,
  });
  const held: Command = { id: randomUUID(), kind: 'spend', hold: movement(`app:${a}`, `app:${b}`, 10) };
  const taken = spend(1);
  const ends = (more: Partial<Command>): Command => ({ id: randomUUID(), kind: 'spend', ...more });
  const [elsewhere, past] = [randomUUID(), movement(`app:${a}`, `app:${b}`, 1, { expiresAtMs: '1000' })];
  expect(
    await apply(
      [held],
      [taken],
      [{ ...spend(2), id: taken.id }],
      [spend(0)],
      [spend(-1)],
      [spend(2 ** 53)],
      [spend(1_000)],
      [spend(1, { id: 'no uuid' })],
      [transfer('spend', `app:${a}`, `app:${a}`, 1)],
      [transfer('spend', `app:${a}`, 'app:no such name!', 1)],
      [transfer('spend', `app:${a}`, `app:${b}`, 1, { ref: 'a\u0000b' })],
      [ends({ post: { holdId: held.id, amount: '11' } })],
      [ends({ post: { holdId: elsewhere } })],
      [ends({ kind: 'spend_share', void: { holdId: held.id } })],
      [ends({ hold: past })],
      [ends({ post: { holdId: held.id, amount: '4' } })],
      [ends({ void: { holdId: held.id } })],
    ),
  ).toEqual([
    ['created'],
    ['created'],
    ['TRANSFER_ID_TAKEN'],
    ['AMOUNT_OUT_OF_RANGE'],
    ['AMOUNT_OUT_OF_RANGE'],
    ['AMOUNT_OUT_OF_RANGE'],
    ['INSUFFICIENT_FUNDS'],
    ['COMMAND_INVALID'],
    ['SAME_ACCOUNT'],
    ['COMMAND_INVALID'],
    ['COMMAND_INVALID'],
    ['HOLD_EXCEEDED'],
    ['HOLD_NOT_FOUND'],
    ['HOLD_NOT_FOUND'],
    ['EXPIRY_PASSED'],
    ['created'],
    ['HOLD_ENDED'],
  ]);
  expect([await balanceOf(a), await balanceOf(b)]).toEqual(['95', '105']);
});

test('a request of 1,000 commands is applied, one of more is refused as a whole', async () => {
  const [a, b] = [await appWith(1_000), newApp()];
  const many = (count: number) => Array.from({ length: count }, () => [transfer('spend', `app:${a}`, `app:${b}`, 1)]);
  expect(new Set((await apply(...many(1_000))).flat())).toEqual(new Set(['created']));
  expect(await balanceOf(b)).toBe('1000');
  for (const groups of [many(1_001), [], [[]], [[{ id: randomUUID(), kind: 'spend' }]]])
    await expect(apply(...groups)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', reason: 'VALIDATION_FAILED' });
});

test('payments moves money by its own kinds of transfer only, and the gateway moves none', async () => {
  const app = await appWith(100);
  const foreign = [
    transfer('payout', `app:${app}`, 'chain:granary', 1),
    transfer('deposit', 'chain:granary', `app:${app}`, 1),
    transfer('retention', `app:${app}`, 'platform:fees', 1),
    // A kind of its own, between accounts that the kind does not join.
    transfer('income', 'chain:granary', `app:${app}`, 1),
    transfer('spend', `app:${app}`, 'rates', 1),
    transfer('constructor', `app:${app}`, 'platform:fees', 1),
  ];
  for (const command of foreign)
    await expect(apply([transfer('income', 'rates', `app:${app}`, 5)], [command])).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      reason: 'FORBIDDEN',
    });
  expect(await balanceOf(app)).toBe('100');
  for (const caller of ['gateway', 'data'] as const)
    await expect(clientOf(caller).apply({ groups: [] }, call())).rejects.toMatchObject({ reason: 'INTERNAL' });
});

test('balances are of one moment, and a statement goes on where it was left', async () => {
  const [a, b] = [await appWith(100), await appWith(50)];
  for (const amount of [1, 2, 3]) await apply([transfer('spend', `app:${a}`, `app:${b}`, amount)]);
  const { balances } = await payments.getBalances({ accounts: [`app:${b}`, `app:${a}`, 'app:nobody'] }, call());
  expect(balances.map(({ creditsPosted, debitsPosted, unit }) => [creditsPosted, debitsPosted, unit]).sort()).toEqual([
    ['100', '6', 'utia'],
    ['56', '0', 'utia'],
  ]);
  const amounts: string[] = [];
  for (let after = '0'; ;) {
    const { entries } = await payments.listEntries({ account: `app:${a}`, after, limit: 2 }, call());
    if (entries.length === 0) break;
    amounts.push(...entries.map(({ amount }) => amount));
    after = entries.at(-1)!.number;
  }
  expect(amounts).toEqual(['100', '1', '2', '3']);
  for (const limit of [0, 1_001])
    await expect(payments.listEntries({ account: `app:${a}`, after: '0', limit }, call())).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    });
});

test('open holds are listed page by page by their expiry and ref, until they end', async () => {
  const [a, b] = [await appWith(100), newApp()];
  const prefix = `write ${a} `;
  const dueMs = Date.now() + 3_600_000;
  const hold = (ref: string, expiresAtMs: number): Command => ({
    id: randomUUID(),
    kind: 'spend',
    hold: movement(`app:${a}`, `app:${b}`, 1, { expiresAtMs: String(expiresAtMs), ref }),
  });
  const holds = [
    hold(`${prefix}2`, dueMs),
    hold(`${prefix}1`, dueMs),
    hold(`${prefix}0`, dueMs + 1),
    hold(`${prefix}late`, dueMs + 2),
    hold('other', dueMs),
  ];
  expect((await apply(...holds.map((one) => [one]))).flat()).toEqual(holds.map(() => 'created'));
  const page = async (after: { expiresAtMs: string; ref: string }, limit = 2) => {
    const bounds = { refPrefix: prefix, expireByMs: String(dueMs + 1), limit };
    const { expiresAtMs: afterExpiresAtMs, ref: afterRef } = after;
    return (await payments.listHolds({ ...bounds, afterExpiresAtMs, afterRef }, call())).holds;
  };
  const none = { expiresAtMs: '0', ref: '' };
  const first = await page(none);
  expect(first.map(({ ref, kind, amount }) => [ref, kind, amount])).toEqual([
    [`${prefix}1`, 'spend', '1'],
    [`${prefix}2`, 'spend', '1'],
  ]);
  const second = await page(first[1]!);
  expect(second.map(({ ref, expiresAtMs }) => [ref, expiresAtMs])).toEqual([[`${prefix}0`, String(dueMs + 1)]]);
  expect(await page(second[0]!)).toEqual([]);
  await apply([{ id: randomUUID(), kind: 'spend', void: { holdId: first[0]!.id } }]);
  expect((await page(none, 1_000)).map(({ ref }) => ref)).toEqual([`${prefix}2`, `${prefix}0`]);
  for (const limit of [0, 1_001]) await expect(page(none, limit)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
});

test('a hold that nobody ends is voided by the service once it has expired', async () => {
  const [a, b] = [await appWith(100), newApp()];
  let seconds = 0;
  // On a slow machine a hold expires, and may be voided, before its effect was seen: then another one lasts longer.
  await eventually(async () => {
    const expiresAtMs = String(Date.now() + (seconds += 1) * 1_000);
    const hold = movement(`app:${a}`, `app:${b}`, 60, { expiresAtMs });
    const [results] = await apply([{ id: randomUUID(), kind: 'spend', hold }]);
    return results![0] === 'created' && (await balanceOf(a)) === '40';
  });
  await eventuallyHolds(
    () => balanceOf(a),
    (balance) => balance === '100',
  );
});
