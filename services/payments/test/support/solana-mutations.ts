import { createHash } from 'node:crypto';
import * as fc from 'fast-check';
import { solanaEnvelope, solanaRequirement } from '@granary/testing/solana-client';
import {
  at,
  bytesOf,
  computeLimit,
  computePrice,
  draftMemo,
  keys,
  messageOf,
  newDraft,
  successor,
  tokenAccountOf,
  transactionOf,
  transferChecked,
  type Draft,
} from './solana-draft';

type Requirement = ReturnType<typeof solanaRequirement>;
export type SolanaEnvelope = ReturnType<typeof solanaEnvelope>;

/** A change before the signature, or behind it. */
export interface Mutation {
  draft?: (draft: Draft) => unknown;
  requirement?: (requirement: Requirement & { amount?: string }) => unknown;
  message?: (message: Buffer) => Buffer;
  transaction?: (transaction: Buffer) => Buffer;
  text?: (text: string) => string;
  envelope?: (envelope: SolanaEnvelope) => unknown;
}

const place = fc.nat(9);
const instruction = fc.nat(3);

/** Changes an instruction, if another change has not removed it. */
const ofInstruction =
  (which: number, change: (instruction: Draft['instructions'][number]) => unknown) =>
  ({ instructions }: Draft): unknown =>
    instructions[which] && change(instructions[which]);
const dataOf = (which: number, data: (now: Buffer) => Buffer) =>
  ofInstruction(which, (instruction) => (instruction.data = data(instruction.data)));

const accounts = fc.constantFrom(
  ...[keys.stranger, keys.payTo, keys.payer, keys.feePayer, keys.otherFeePayer].map(({ bytes }) => bytes),
  ...[bytesOf(successor), createHash('sha256').update('no key').digest()],
);

const ofData: ReadonlyArray<fc.Arbitrary<Mutation['draft']>> = [
  fc
    .tuple(fc.constantFrom(0n, 9_999n, 10_000n, 10_001n, 2n ** 64n - 1n), fc.constantFrom(0, 6, 6, 9))
    .map(([amount, decimals]) => dataOf(2, () => transferChecked(amount, decimals))),
  fc.constantFrom(0, 1, 200_000, 200_001, 1_400_000).map((units) => dataOf(0, () => computeLimit(units))),
  fc.constantFrom(0n, 5_000_000n, 5_000_001n, 2n ** 64n - 1n).map((price) => dataOf(1, () => computePrice(price))),
  instruction.map((which) => dataOf(which, (data) => Buffer.concat([data, Buffer.alloc(1)]))),
  instruction.map((which) => dataOf(which, (data) => data.subarray(0, -1))),
  fc
    .constantFrom(
      ...['', draftMemo, 'other', `\ufeff${draftMemo}`, 'm'.repeat(1_000)].map((text) => Buffer.from(text)),
      Buffer.from([0xff]),
    )
    .map((data) => dataOf(3, () => data)),
];

const ofLayout: ReadonlyArray<fc.Arbitrary<Mutation['draft']>> = [
  fc.tuple(instruction, place).map(([which, program]) => ofInstruction(which, (it) => (it.program = program))),
  fc
    .tuple(instruction, fc.array(place, { maxLength: 5 }))
    .map(([which, named]) => ofInstruction(which, (it) => (it.accounts = named))),
  fc.tuple(fc.nat(3), place).map(([nth, account]) => ofInstruction(2, (it) => (it.accounts[nth] = account))),
  place.map((account) => ofInstruction(2, (it) => it.accounts.push(account))),
  instruction.map(
    (which) =>
      ({ instructions }) =>
        instructions.splice(which, 1),
  ),
  fc.tuple(instruction, instruction).map(([from, to]) => ({ instructions }) => {
    const [one, other] = [instructions[from], instructions[to]];
    if (one && other) [instructions[from], instructions[to]] = [other, one];
  }),
  fc
    .array(fc.constantFrom(at.lighthouse, at.lighthouse, at.memo, at.token), { minLength: 1, maxLength: 4 })
    .map((programs) => ({ instructions }) => {
      for (const program of programs) instructions.push({ program, accounts: [], data: Buffer.from(draftMemo) });
    }),
  fc.tuple(place, accounts).map(
    ([which, account]) =>
      (draft) =>
        (draft.accounts[which] = account),
  ),
  accounts.map((account) => ({ accounts: all, header }) => {
    all.push(account);
    header[2] += 1;
  }),
  fc.constant(async (draft: Draft) => {
    draft.accounts[at.token] = bytesOf(successor);
    draft.accounts[at.destination] = await tokenAccountOf(keys.payTo.address, { program: successor });
  }),
  fc.tuple(fc.nat(2), fc.constantFrom(-1, 1)).map(
    ([which, by]) =>
      ({ header }) =>
        (header[which]! += by),
  ),
  fc.constant((draft: Draft) => {
    draft.header[0] = 3;
    draft.accounts[2] = keys.stranger.bytes;
    draft.signers.push(keys.stranger);
  }),
  fc.constantFrom(undefined, 0, 1, 127).map((version) => (draft) => (draft.version = version)),
  fc
    .constantFrom([1, ...keys.stranger.bytes, 1, 0, 0], [1, ...keys.stranger.bytes, 0, 0])
    .map((lookups) => (draft) => (draft.lookups = Buffer.from(lookups))),
  fc
    .constantFrom([], [keys.stranger], [keys.payer, keys.payer])
    .map((signers) => (draft) => (draft.signers = [...signers])),
  fc
    .uint8Array({ minLength: 64, maxLength: 64 })
    .map((bytes) => (draft) => (draft.feePayerSignature = Buffer.from(bytes))),
];

const addresses = Object.values(keys).map((key) => key.address);
const ofRequirement: ReadonlyArray<fc.Arbitrary<Mutation['requirement']>> = [
  fc
    .constantFrom({ memo: undefined }, { memo: '' }, { memo: 'other' }, { memo: undefined, quoteId: 'other' })
    .map((extra) => (required) => Object.assign(required.extra, extra)),
  fc.constantFrom(undefined, ...addresses).map((feePayer) => (required) => Object.assign(required.extra, { feePayer })),
  fc.constantFrom(...addresses, 'x').map((payTo) => (required) => (required.payTo = payTo)),
  fc.constantFrom(...addresses).map((asset) => (required) => (required.asset = asset)),
  fc.constantFrom('9999', '10001', '0', '1e4', '0x2710', '', ' 10000').map((amount) => (required) => {
    Object.assign(required, 'amount' in required ? { amount } : { maxAmountRequired: amount });
  }),
  fc
    .constantFrom('solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp', 'solana', 'eip155:1')
    .map((network) => (required) => (required.network = network)),
];

const spliced = fc
  .tuple(fc.nat(), fc.nat(3), fc.uint8Array({ maxLength: 3 }))
  .map(([where, count, put]) => (bytes: Buffer) => {
    const from = where % (bytes.length + 1);
    return Buffer.concat([bytes.subarray(0, from), put, bytes.subarray(from + count)]);
  });
/** A length that is written in a byte more than it needs, of the accounts. */
const longLength = (message: Buffer): Buffer =>
  Buffer.concat([message.subarray(0, 4), Buffer.from([message[4]! | 0x80, 0]), message.subarray(5)]);
const appended = (bytes: Buffer): Buffer => Buffer.concat([bytes, Buffer.alloc(1)]);

const texts = fc.constantFrom<(text: string) => string>(
  (text) => text.replace(/=+$/, ''),
  (text) => `${text}=`,
  (text) => `${text}AAAA`,
  (text) => ` ${text}`,
  (text) => text.replaceAll('+', '-').replaceAll('/', '_'),
);
const envelopes = fc.constantFrom<NonNullable<Mutation['envelope']>>(
  ({ paymentPayload }) => Object.assign(paymentPayload, { scheme: 'upto' }),
  ({ paymentPayload }) =>
    'accepted' in paymentPayload && Object.assign(paymentPayload.accepted, { maxTimeoutSeconds: 61 }),
  ({ paymentPayload }) => 'accepted' in paymentPayload && Object.assign(paymentPayload.accepted, { network: 'solana' }),
);

const mutation: fc.Arbitrary<Mutation> = fc.oneof(
  { weight: 4, arbitrary: fc.oneof(...ofData).map((draft) => ({ draft: draft! })) },
  { weight: 8, arbitrary: fc.oneof(...ofLayout).map((draft) => ({ draft: draft! })) },
  { weight: 3, arbitrary: fc.oneof(...ofRequirement).map((requirement) => ({ requirement: requirement! })) },
  { weight: 2, arbitrary: fc.oneof(spliced, fc.constantFrom(longLength, appended)).map((message) => ({ message })) },
  { weight: 1, arbitrary: fc.oneof(spliced, fc.constant(appended)).map((transaction) => ({ transaction })) },
  { weight: 1, arbitrary: texts.map((text) => ({ text })) },
  { weight: 1, arbitrary: envelopes.map((envelope) => ({ envelope })) },
);

/** Payments with none, one or two changes, of which many fit the signature. */
export const mutatedPayments = fc.tuple(
  fc.constantFrom<1 | 2>(1, 2, 2),
  fc.oneof(
    { weight: 4, arbitrary: fc.array(mutation, { maxLength: 1 }) },
    { weight: 3, arbitrary: fc.array(mutation, { minLength: 2, maxLength: 2 }) },
  ),
);

export async function mutatedEnvelope(version: 1 | 2, mutations: readonly Mutation[]): Promise<SolanaEnvelope> {
  const draft = await newDraft();
  const extra = { feePayer: keys.feePayer.address, memo: draftMemo };
  const required = solanaRequirement(version, { payTo: keys.payTo.address, extra });
  for (const { draft: change, requirement } of mutations) {
    await change?.(draft);
    requirement?.(required);
  }
  let message = messageOf(draft);
  for (const { message: change } of mutations) message = change?.(message) ?? message;
  let transaction = transactionOf(draft, message);
  for (const { transaction: change } of mutations) transaction = change?.(transaction) ?? transaction;
  let text = transaction.toString('base64');
  for (const { text: change } of mutations) text = change?.(text) ?? text;
  const envelope = solanaEnvelope(version, required, text);
  for (const { envelope: change } of mutations) change?.(envelope);
  return envelope;
}
