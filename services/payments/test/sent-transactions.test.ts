import type { FoundTransaction } from '@granary/shared/gen/granary/finance/v1/FoundTransaction';
import { readJson, type JsonObject } from '@granary/shared/json/value';
import { SentTransactions } from '@granary/payments/schemes/cosmos/sent-transactions';
import { readExactPayment } from '@granary/payments/verify/envelope';

const network = 'cosmos:test-1';
const hash = 'AB'.repeat(32);
const expiresAtSeconds = 1_800_000_000;
const [payTo, payer] = ['celestia1to', 'celestia1from'];
const absent: FoundTransaction = { isIncluded: false, height: '7', code: 0, codespace: '', transfers: [] };
const transfer = { sender: payer, recipient: payTo, amount: '10', memo: 'quote', atMs: '0' };
const included = (changes: Partial<typeof transfer> = {}): FoundTransaction => ({
  ...absent,
  isIncluded: true,
  transfers: [{ ...transfer, atMs: String(expiresAtSeconds * 1_000), ...changes }],
});

/** Looks of a chain that gives these answers, the last one for ever. */
function chainOf(...answers: FoundTransaction[]) {
  let looks = 0;
  const chain = () => ({
    findTransaction: () => Promise.resolve(answers[Math.min(looks++, answers.length - 1)]!),
  });
  return { chain, looks: () => looks };
}

const json = (value: object) => readJson(Buffer.from(JSON.stringify(value)), { maxDepth: 16 }) as JsonObject;
const requirement = {
  scheme: 'exact',
  network,
  maxAmountRequired: '10',
  asset: 'utia',
  payTo,
  maxTimeoutSeconds: 300,
  extra: { quoteId: 'quote' },
};
const payment = readExactPayment({
  payment: json({ x402Version: 1, scheme: 'exact', network, payload: { txHash: hash } }),
  requirement: json(requirement),
});
const verify = (
  { chain }: ReturnType<typeof chainOf>,
  { nowSeconds = expiresAtSeconds, waitMs = 60_000 }: { nowSeconds?: number; waitMs?: number } = {},
) =>
  new SentTransactions({ network, chain, now: () => new Date(nowSeconds * 1_000), waitMs }).verify(payment, {
    id: 'quote',
    expiresAtSeconds,
  });
const reason = (why: string) => ({ details: { reason: why } });

test('a transaction is waited for, and is what makes the payment unique', async () => {
  const chain = chainOf(absent, absent, included());
  expect(await verify(chain)).toMatchObject({ payer, scope: network, key: `tx|${hash}`, proof: { hash } });
  expect(chain.looks()).toBe(3);
});

test('one that no block has is refused, and may be named again', async () => {
  await expect(verify(chainOf(absent), { waitMs: 300 })).rejects.toMatchObject(reason('transaction_not_found'));
});

test('only some requests wait at a time, the others look once', async () => {
  let looks = 0;
  let isIncluded = false;
  const findTransaction = () => {
    looks += 1;
    return Promise.resolve(isIncluded ? included() : absent);
  };
  const now = () => new Date(expiresAtSeconds * 1_000);
  const sent = new SentTransactions({ network, chain: () => ({ findTransaction }), now, waitMs: 60_000 });
  const quote = { id: 'quote', expiresAtSeconds };
  const waiting = Array.from({ length: 50 }, () => sent.verify(payment, quote));
  await expect(sent.verify(payment, quote)).rejects.toMatchObject(reason('transaction_not_found'));
  expect(looks).toBe(51);
  isIncluded = true;
  expect(await Promise.all(waiting)).toHaveLength(50);
});

test('what counts is when it was paid: a quote that expired meanwhile is still paid, for a day', async () => {
  const dayLater = expiresAtSeconds + 86_400;
  expect(await verify(chainOf(included()), { nowSeconds: dayLater })).toMatchObject({
    validUntilSeconds: dayLater + 60,
  });
  const late = included({ atMs: String((expiresAtSeconds + 61) * 1_000) });
  await expect(verify(chainOf(late))).rejects.toMatchObject(reason('quote_expired'));
  const chain = chainOf(included());
  await expect(verify(chain, { nowSeconds: dayLater + 1 })).rejects.toMatchObject(reason('quote_expired'));
  expect(chain.looks()).toBe(0);
});

test('one that failed has moved nothing; of several transfers the one that pays counts', async () => {
  const failed = { ...included(), code: 5, codespace: 'sdk' };
  await expect(verify(chainOf(failed))).rejects.toMatchObject(reason('invalid_transaction_state'));
  const [paying] = included().transfers;
  const others = ['9', '11'].map((amount) => ({ ...paying!, amount }));
  expect(await verify(chainOf({ ...included(), transfers: [...others, paying!] }))).toMatchObject({ payer });
  await expect(verify(chainOf({ ...included(), transfers: others }))).rejects.toMatchObject({
    reason: 'invalid_exact_cosmos_payload_amount_mismatch',
  });
});
