import { at, bytesOf, computeLimit, draftMemo, keys, successor, tokenAccountOf, transferChecked } from './solana-draft';
import type { Mutation } from './solana-mutations';

const data =
  (which: number, bytes: Buffer): NonNullable<Mutation['draft']> =>
  ({ instructions }) =>
    (instructions[which]!.data = bytes);
const named =
  (which: number, accounts: number[]): NonNullable<Mutation['draft']> =>
  ({ instructions }) =>
    (instructions[which]!.accounts = accounts);
const more =
  (bytes: Buffer): NonNullable<Mutation['draft']> =>
  ({ accounts, header }) =>
    accounts.push(bytes) && (header[2] += 1);
const withoutMemo: NonNullable<Mutation['requirement']> = ({ extra }) => (extra['memo'] = undefined);
const amount =
  (text: string): NonNullable<Mutation['requirement']> =>
  (required) =>
    Object.assign(required, 'amount' in required ? { amount: text } : { maxAmountRequired: text });

const free = { draft: data(2, transferChecked(0n)) };

/**
 * What is refused here although the official facilitator would not, without the chain; and a payment of which that is
 * true.
 */
export const stricter: ReadonlyArray<[message: string, payment: Mutation, version?: 1]> = [
  [
    'paymentRequirements.amount must be a whole number in decimal digits, of at most 256 bits',
    { requirement: amount('0x2710') },
  ],
  [
    'paymentRequirements.maxAmountRequired must be a whole number in decimal digits, of at most 256 bits',
    { requirement: amount(' 10000') },
    1,
  ],
  ['paymentRequirements.amount must be positive', { ...free, requirement: amount('0') }],
  ['paymentRequirements.maxAmountRequired must be positive', { ...free, requirement: amount('0') }, 1],
  ['The network is unknown', { requirement: (required) => (required.network = 'solana:x') }, 1],
  ['Payments on this network are not verified here', { requirement: (required) => (required.network = 'solana:x') }],
  [
    'paymentPayload.accepted must equal paymentRequirements',
    {
      envelope: ({ paymentPayload: paid }) =>
        'accepted' in paid && Object.assign(paid.accepted, { maxTimeoutSeconds: 61 }),
    },
  ],
  [
    'The asset is not accepted on the network',
    {
      draft: async (draft) => {
        draft.accounts[at.mint] = keys.stranger.bytes;
        draft.accounts[at.destination] = await tokenAccountOf(keys.payTo.address, { mint: keys.stranger.address });
      },
      requirement: (required) => (required.asset = keys.stranger.address),
    },
  ],
  ['The transaction must be base64 of at most 1232 bytes', { text: (text) => text.replace(/=+$/, '') }],
  [
    'paymentPayload.payload.transaction must have at most 1232 bytes',
    { draft: data(3, Buffer.alloc(1_000, 'm')), requirement: withoutMemo },
  ],
  ['The transaction has bytes behind its end', { message: (message) => Buffer.concat([message, Buffer.alloc(1)]) }],
  [
    'A length is too long, or not in its shortest form',
    { message: (it) => Buffer.concat([it.subarray(0, 4), Buffer.from([it[4]! | 0x80, 0]), it.subarray(5)]) },
  ],
  ['An account is listed twice', { draft: ({ accounts }) => (accounts[at.lighthouse] = accounts[at.mint]!) }],
  ['The header of the message does not fit its accounts and signatures', { draft: ({ header }) => (header[1] = 2) }],
  ['An instruction names an account that is not listed', { draft: named(3, [9]) }],
  [
    'Only the payer of the fee and the payer of the tokens may sign: each signature has a fee',
    {
      draft: (draft) => {
        draft.header[0] = 3;
        draft.accounts.splice(2, 0, keys.stranger.bytes);
        draft.signers.push(keys.stranger);
        for (const each of draft.instructions) {
          each.program += 1;
          each.accounts = each.accounts.map((place) => (place > 1 ? place + 1 : place));
        }
      },
    },
  ],
  [
    'The signature of the payer of the fee must be empty',
    { draft: (draft) => (draft.feePayerSignature = Buffer.alloc(64, 1)) },
  ],
  ['The first instruction must be SetComputeUnitLimit', { draft: data(0, Buffer.from([2, 1, 0, 0, 0, 0])) }],
  ['At most 200000 compute units are accepted', { draft: data(0, computeLimit(200_001)) }],
  ['The second instruction must be SetComputeUnitPrice', { draft: named(1, [at.payer]) }],
  [
    'The third instruction must be TransferChecked, with four accounts',
    { draft: named(2, [at.source, at.mint, at.destination, at.payer, at.payer]) },
  ],
  [
    'The transfer is not by the program of the asset',
    {
      draft: async (draft) => {
        draft.accounts[at.token] = bytesOf(successor);
        draft.accounts[at.destination] = await tokenAccountOf(keys.payTo.address, { program: successor });
      },
    },
  ],
  ['The transfer has other decimals than the asset', { draft: data(2, transferChecked(10_000n, 9)) }],
  ['The accounts of the transfer must be writable', { draft: ({ header }) => (header[2] += 1) }],
  ['Who transfers the tokens must sign', { draft: named(2, [at.source, at.mint, at.destination, at.memo]) }],
  ['The payer is the recipient', { draft: named(2, [at.destination, at.mint, at.destination, at.payer]) }],
  [
    'The payer of the fee must have no part in the transfer',
    { draft: named(2, [at.feePayer, at.mint, at.destination, at.payer]) },
  ],
  ['The payer of the fee must have no part in an instruction', { draft: named(3, [at.feePayer]) }],
  ['No other payer of fees may have a part in the payment', { draft: more(keys.otherFeePayer.bytes) }],
  ['A memo must be in UTF-8', { draft: data(3, Buffer.from([0xff])), requirement: withoutMemo }],
  [
    'There must be one memo, or at most one if the requirements have none',
    {
      draft: ({ instructions }) => instructions.push(instructions[3]!),
      requirement: withoutMemo,
    },
  ],
  ['The memo is not extra.memo, or else extra.quoteId', { draft: data(3, Buffer.from(`\ufeff${draftMemo}`)) }],
];
