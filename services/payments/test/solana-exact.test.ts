import { createHash } from 'node:crypto';
import * as fc from 'fast-check';
import { checkProperty } from '@granary/testing/properties';
import { size } from '@granary/testing/size';
import {
  paySolana,
  solanaEnvelope,
  solanaRequirement,
  solanaSigner,
  solanaTest,
  startSolanaNode,
} from '@granary/testing/solana-client';
import { parseSolanaAssets } from '../src/schemes/solana/assets';
import { readEnvelope } from '../src/verify/envelope';
import { Verifier, type Finding } from '../src/verify/verifier';
import {
  at,
  bytesOf,
  computeLimit,
  computePrice,
  draftMemo,
  keys,
  newDraft,
  requirement,
  successor,
  tokenAccountOf,
  transactionOf,
  transferChecked,
  type Draft,
} from './support/solana-draft';
import { SolanaExact } from '../src/schemes/solana/verify';

const now = () => new Date(1_800_000_000_000);
const verifierFor = (assets = 'usdc-test', feePayers = [keys.feePayer.address, keys.otherFeePayer.address]) =>
  new Verifier([new SolanaExact({ assets: parseSolanaAssets(assets), feePayers })], now);
const verifier = verifierFor();

const verify = (envelope: object, by = verifier): Promise<Finding> => by.verify(Buffer.from(JSON.stringify(envelope)));
const verifyBytes = (bytes: Buffer, required: object = requirement()) =>
  verify(solanaEnvelope(2, required, bytes.toString('base64')));

async function reasonOf(finding: Finding | Promise<Finding>): Promise<string> {
  const found = await finding;
  return found.isValid ? 'valid' : found.invalidReason.replace('invalid_exact_svm_', '');
}

type Change = (draft: Draft) => unknown;

async function changed(...changes: Change[]): Promise<Draft> {
  const draft = await newDraft();
  for (const change of changes) await change(draft);
  return draft;
}
const reasonAfter = async (change: Change, required: object = requirement()) =>
  reasonOf(verifyBytes(transactionOf(await changed(change)), required));

const withData =
  (instruction: number, data: Buffer): Change =>
  ({ instructions }) =>
    (instructions[instruction]!.data = data);
const withAccounts =
  (instruction: number, accounts: number[]): Change =>
  ({ instructions }) =>
    (instructions[instruction]!.accounts = accounts);
const withAccount =
  (place: number, account: Buffer): Change =>
  ({ accounts }) =>
    (accounts[place] = account);
const withMore =
  (...programs: number[]): Change =>
  ({ instructions }) =>
    instructions.push(...programs.map((program) => ({ program, accounts: [], data: Buffer.from(draftMemo) })));
const withOtherSigner: Change = (draft) => {
  draft.header[0] = 3;
  draft.accounts.splice(2, 0, keys.stranger.bytes);
  for (const each of draft.instructions) {
    each.program += 1;
    each.accounts = each.accounts.map((place) => (place > 1 ? place + 1 : place));
  }
  draft.signers.push(keys.stranger);
};

test('a payment of the official client is valid in both versions, and its claim is the hash of what is signed', async () => {
  const node = await startSolanaNode();
  const [payer, recipient] = [await solanaSigner(1), await solanaSigner(2)];
  const terms = { payTo: recipient.address, extra: { feePayer: keys.feePayer.address, memo: 'q1' } };
  for (const version of [1, 2] as const) {
    for (const extra of [terms.extra, { feePayer: keys.feePayer.address }]) {
      const envelope = await paySolana(version, payer, node.url, { ...terms, extra });
      expect(await verify(envelope)).toEqual({ isValid: true, payer: payer.address });
      const { transaction } = envelope.paymentPayload.payload;
      const message = Buffer.from(transaction, 'base64').subarray(129);
      const messageHash = createHash('sha256').update(message).digest('hex');
      const { verified } = await verifier.verifyEnvelope(readEnvelope(Buffer.from(JSON.stringify(envelope))));
      expect(verified).toEqual({
        payer: payer.address,
        scope: solanaTest.network,
        key: messageHash,
        validUntilSeconds: 1_800_000_150,
        proof: { network: solanaTest.network, feePayer: keys.feePayer.address, transaction, messageHash },
      });
    }
  }
  await node.stop();
});

test('a message of the legacy form, with assertions of wallets and without a memo, is valid', async () => {
  const valid: Change[] = [
    () => {},
    (draft) => (draft.version = undefined),
    withMore(at.lighthouse, at.lighthouse, at.lighthouse),
    withData(0, computeLimit(200_000)),
    withData(1, computePrice(5_000_000n)),
    ({ accounts, header }) => accounts.push(keys.stranger.bytes) && (header[2] += 1),
  ];
  for (const change of valid)
    expect([change.toString(), await reasonAfter(change)]).toEqual([change.toString(), 'valid']);
  const withoutMemo = requirement({ memo: undefined });
  expect(await reasonAfter(({ instructions }) => instructions.pop(), withoutMemo)).toBe('valid');
  expect(await reasonAfter(withData(3, Buffer.from('a random text')), withoutMemo)).toBe('valid');
  const quoted = requirement({ memo: undefined, quoteId: draftMemo });
  expect(await reasonAfter(() => {}, quoted)).toBe('valid');
  expect(await reasonAfter(withData(3, Buffer.from('another')), quoted)).toBe('payload_memo_mismatch');
});

const refused: ReadonlyArray<[Change, string]> = [
  [withData(2, transferChecked(9_999n)), 'payload_amount_mismatch'],
  [withData(2, transferChecked(10_001n)), 'payload_amount_mismatch'],
  [withData(2, transferChecked(10_000n, 5)), 'payload_transaction'],
  [withData(2, Buffer.concat([transferChecked(10_000n), Buffer.alloc(1)])), 'payload_no_transfer_instruction'],
  [withData(2, transferChecked(10_000n).subarray(0, 9)), 'payload_no_transfer_instruction'],
  [
    withData(2, Buffer.concat([Buffer.from([3]), transferChecked(10_000n).subarray(1)])),
    'payload_no_transfer_instruction',
  ],
  [({ instructions }) => (instructions[2]!.program = at.lighthouse), 'payload_no_transfer_instruction'],
  [withAccount(at.mint, keys.stranger.bytes), 'payload_mint_mismatch'],
  [
    async (draft) => (draft.accounts[at.destination] = await tokenAccountOf(keys.stranger.address)),
    'payload_recipient_mismatch',
  ],
  [withAccount(at.destination, keys.payTo.bytes), 'payload_recipient_mismatch'],
  [withAccounts(2, [at.source, at.mint, at.source, at.payer]), 'payload_recipient_mismatch'],
  [withAccounts(2, [at.destination, at.mint, at.destination, at.payer]), 'invalid_payload'],
  [withAccounts(2, [at.source, at.mint, at.destination]), 'payload_no_transfer_instruction'],
  [withAccounts(2, [at.source, at.mint, at.destination, at.payer, at.payer]), 'payload_no_transfer_instruction'],
  [withAccounts(2, [at.source, at.mint, at.destination, at.memo]), 'payload_transaction'],
  [({ header }) => (header[2] += 1), 'payload_transaction'],
  [({ header }) => (header[2] += 2), 'payload_transaction'],
  [
    withAccounts(2, [at.source, at.mint, at.destination, at.feePayer]),
    'payload_transaction_fee_payer_transferring_funds',
  ],
  [
    withAccounts(2, [at.feePayer, at.mint, at.destination, at.payer]),
    'payload_transaction_fee_payer_transferring_funds',
  ],
  [withAccounts(3, [at.feePayer]), 'invalid_fee_payer'],
  [({ accounts, header }) => accounts.push(keys.otherFeePayer.bytes) && (header[2] += 1), 'invalid_fee_payer'],
  [withAccount(at.feePayer, keys.stranger.bytes), 'fee_payer_mismatch'],
  [withAccount(at.feePayer, keys.otherFeePayer.bytes), 'fee_payer_mismatch'],
  [({ instructions }) => instructions.splice(2), 'payload_transaction_instructions_length'],
  [withMore(at.lighthouse, at.lighthouse, at.lighthouse, at.lighthouse), 'payload_transaction_instructions_length'],
  [({ instructions }) => instructions.reverse(), 'payload_transaction_instructions_compute_limit_instruction'],
  [withData(0, computePrice(1n)), 'payload_transaction_instructions_compute_limit_instruction'],
  [
    withData(0, Buffer.concat([computeLimit(1), Buffer.alloc(1)])),
    'payload_transaction_instructions_compute_limit_instruction',
  ],
  [withData(0, computeLimit(200_001)), 'payload_transaction_instructions_compute_limit_instruction_too_high'],
  [withData(1, computeLimit(1)), 'payload_transaction_instructions_compute_price_instruction'],
  [withData(1, computePrice(5_000_001n)), 'payload_transaction_instructions_compute_price_instruction_too_high'],
  [withMore(at.token), 'payload_unknown_fifth_instruction'],
  [withMore(at.lighthouse, at.computeBudget), 'payload_unknown_sixth_instruction'],
  [withMore(at.lighthouse, at.lighthouse, at.computeBudget), 'payload_unknown_seventh_instruction'],
  [({ instructions }) => (instructions[3]!.program = at.mint), 'payload_unknown_fourth_instruction'],
  [({ instructions }) => instructions.pop(), 'payload_memo_count'],
  [withMore(at.memo), 'payload_memo_count'],
  [withData(3, Buffer.from('quote-2')), 'payload_memo_mismatch'],
  [withData(3, Buffer.from(`\ufeff${draftMemo}`)), 'payload_memo_mismatch'],
  [withData(3, Buffer.from([0xff])), 'payload_transaction'],
  [withOtherSigner, 'payload_excessive_signers'],
  [(draft) => (draft.signers = [keys.stranger]), 'payload_signature_invalid'],
  [(draft) => (draft.feePayerSignature = Buffer.alloc(64, 1)), 'payload_signature_invalid'],
  [(draft) => (draft.signers = []), 'payload_transaction_could_not_be_decoded'],
  [(draft) => (draft.version = 1), 'payload_transaction_could_not_be_decoded'],
  [
    (draft) => (draft.lookups = Buffer.from([1, ...keys.stranger.bytes, 1, 0, 0])),
    'smart_wallet_alt_resolution_not_available',
  ],
  [withAccount(at.lighthouse, keys.payer.bytes), 'payload_transaction_could_not_be_decoded'],
  [({ header }) => (header[1] = 2), 'payload_transaction_could_not_be_decoded'],
  [({ header }) => (header[2] = 8), 'payload_transaction_could_not_be_decoded'],
  [withAccounts(3, [9]), 'payload_transaction_could_not_be_decoded'],
  [({ instructions }) => (instructions[3]!.program = at.feePayer), 'payload_transaction_could_not_be_decoded'],
];

test('a payment that is not what is required is refused with the reason, though its signature fits', async () => {
  const found = [];
  for (const [change] of refused) found.push([change.toString(), await reasonAfter(change)]);
  expect(found).toEqual(refused.map(([change, why]) => [change.toString(), why]));
});

test('version 1 takes an instruction fewer, and requirements that this service does not serve are refused', async () => {
  const reason =
    (version: 1 | 2, extra: object, change: Change = () => {}, asset: object = {}) =>
    async () => {
      const terms = {
        payTo: keys.payTo.address,
        extra: { feePayer: keys.feePayer.address, memo: draftMemo, ...extra },
      };
      const required = { ...solanaRequirement(version, terms), ...asset };
      const bytes = transactionOf(await changed(change));
      return reasonOf(verify(solanaEnvelope(version, required, bytes.toString('base64'))));
    };
  const cases: Array<[() => Promise<string>, string]> = [
    [reason(1, {}, withMore(at.lighthouse, at.lighthouse)), 'valid'],
    [reason(1, {}, withMore(at.lighthouse, at.lighthouse, at.lighthouse)), 'payload_transaction_instructions_length'],
    [reason(2, { feePayer: undefined }), 'payload_missing_fee_payer'],
    [reason(2, { feePayer: keys.stranger.address }), 'fee_payer_not_managed_by_facilitator'],
    [reason(2, { feePayer: 7 }), 'invalid_payment_requirements'],
    [reason(2, { memo: 7 }), 'invalid_payment_requirements'],
    [reason(2, {}, undefined, { asset: keys.stranger.address }), 'invalid_payment_requirements'],
    [reason(2, {}, undefined, { payTo: `1${keys.payTo.address}` }), 'invalid_payment_requirements'],
    [reason(2, {}, undefined, { payTo: 'l'.repeat(44) }), 'invalid_payment_requirements'],
    [reason(2, {}, undefined, { payTo: keys.payer.address }), 'invalid_payload'],
    [reason(2, {}, undefined, { network: 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp' }), 'invalid_network'],
    [reason(2, {}, undefined, { network: solanaTest.name }), 'invalid_network'],
    [reason(1, {}, undefined, { network: solanaTest.network }), 'invalid_network'],
  ];
  for (const [at, [found, why]] of cases.entries()) expect([at, await found()]).toEqual([at, why]);
  const envelope = solanaEnvelope(2, requirement(), transactionOf(await newDraft()).toString('base64'));
  expect(await reasonOf(verify(envelope, verifierFor('usdc-test', [])))).toBe('invalid_network');
});

test('a token of the program Token-2022 is paid by that program, to the account that it has there', async () => {
  const by = verifierFor(`${solanaTest.network}/${solanaTest.mint}=6:token-2022`);
  const draft = await changed(
    withAccount(at.token, bytesOf(successor)),
    withAccount(at.destination, await tokenAccountOf(keys.payTo.address, { program: successor })),
  );
  const [right, wrong] = [draft, await newDraft()].map((each) =>
    solanaEnvelope(2, requirement(), transactionOf(each).toString('base64')),
  );
  expect(await reasonOf(verify(right!, by))).toBe('valid');
  expect(await reasonOf(verify(wrong!, by))).toBe('payload_no_transfer_instruction');
  expect(await reasonOf(verify(right!))).toBe('payload_no_transfer_instruction');
});

test('each bit of a transaction that is flipped makes it another one, which is refused', async () => {
  const bytes = transactionOf(await newDraft());
  expect(await reasonOf(verifyBytes(bytes))).toBe('valid');
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const flipped = Buffer.from(bytes);
    flipped[bit >> 3]! ^= 1 << (bit & 7);
    expect([bit, (await verifyBytes(flipped)).isValid]).toEqual([bit, false]);
  }
});

test('bytes that are put in, left out or replaced make a transaction that is refused, as does any other text', async () => {
  const bytes = transactionOf(await newDraft());
  const splice = fc.tuple(fc.nat(bytes.length), fc.nat(4), fc.uint8Array({ maxLength: 4 }));
  await checkProperty(
    'payments/solana-exact splices',
    size({ run: 100, long: 20_000 }),
    fc.asyncProperty(fc.array(splice, { minLength: 1, maxLength: 3 }), async (splices) => {
      const spliced = [...bytes];
      for (const [place, count, put] of splices) spliced.splice(place, count, ...put);
      fc.pre(!Buffer.from(spliced).equals(bytes));
      expect((await verifyBytes(Buffer.from(spliced))).isValid).toBe(false);
    }),
  );
  const other = fc.oneof(fc.string(), fc.base64String());
  await checkProperty(
    'payments/solana-exact texts',
    size({ run: 100, long: 500 }),
    fc.asyncProperty(other, async (transaction) => {
      expect((await verify(solanaEnvelope(2, requirement(), transaction))).isValid).toBe(false);
    }),
  );
});

test('a transaction in another spelling of base64, or longer than the network takes, is refused', async () => {
  const withoutMemo = requirement({ memo: undefined });
  const withMemo = async (length: number) => transactionOf(await changed(withData(3, Buffer.alloc(length, 'm'))));
  const longest = await withMemo(1_232 - (await withMemo(200)).length + 200);
  expect(longest).toHaveLength(1_232);
  expect((await verifyBytes(longest, withoutMemo)).isValid).toBe(true);
  const longer = Buffer.concat([longest, Buffer.alloc(1)]);
  expect(await reasonOf(verifyBytes(longer, withoutMemo))).toBe('payload_transaction_could_not_be_decoded');
  expect(await reasonOf(verifyBytes(Buffer.alloc(4_096), withoutMemo))).toBe('invalid_payload');
  for (const transaction of [undefined, null, 7, {}, []]) {
    expect(await reasonOf(verify(solanaEnvelope(2, requirement(), transaction as never)))).toBe('invalid_payload');
  }
  // 1,232 bytes are three times 410 and two, so there are two bits that no byte has.
  const text = longest.toString('base64');
  expect(text).toMatch(/[^=]=$/);
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const last = alphabet.indexOf(text.at(-2)!);
  const spellings = [
    ...[1, 2, 3].map((bits) => `${text.slice(0, -2)}${alphabet[last + bits]}=`),
    text.slice(0, -1),
    `\n${text.slice(1)}`,
    text.replace('A', '_'),
    `${text.slice(0, -4)}    `,
  ];
  for (const spelling of spellings) {
    expect(await reasonOf(verify(solanaEnvelope(2, withoutMemo, spelling)))).toBe(
      'payload_transaction_could_not_be_decoded',
    );
  }
});
