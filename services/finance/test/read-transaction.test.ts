import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { secp256k1 } from '@noble/curves/secp256k1';
import { AuthInfo, TxBody, TxRaw } from 'cosmjs-types/cosmos/tx/v1beta1/tx';
import * as fc from 'fast-check';
import { checkProperty } from '@granary/testing/properties';
import {
  readTransaction,
  TransactionRefused,
  verifySignature,
  type ReadRules,
} from '@granary/shared/money/cosmos/read-transaction';
import { signTransfer } from '../src/chain/sign-transfer';
import type { Transfer } from '@granary/shared/money/cosmos/transaction';
import { addressOf } from '@granary/shared/money/cosmos/address';
import { openKeyFile, type KeyProvider } from '../src/wallets/keys';

let keys: KeyProvider;
let plain: Transfer;
const rules: ReadRules = { prefix: 'celestia', chainId: 'test', memoBytesMax: 256 };
beforeAll(async () => {
  keys = await openKeyFile(join(await mkdtemp(join(tmpdir(), 'granary-reading-')), 'seed'), { create: true });
  const recipient = addressOf(await keys.publicKey({ wallet: 0 }), 'celestia');
  plain = {
    chainId: 'test',
    accountNumber: 7n,
    sequence: 3n,
    sender: addressOf(await keys.publicKey('hot'), 'celestia'),
    outputs: [{ address: recipient, amount: 5n }],
    denom: 'utia',
    memo: 'm',
    fee: { amount: 400n, gas: 100_000n },
    timeoutHeight: 50n,
  };
});

const signed = async (change: Partial<Transfer> = {}) =>
  (await signTransfer(keys, 'hot', { ...plain, ...change })).bytes;

const read = (bytes: Uint8Array): Transfer => verifySignature(readTransaction(bytes, rules), 7n);

function refusal(bytes: Uint8Array): number | undefined {
  try {
    read(bytes);
    return undefined;
  } catch (error) {
    if (error instanceof TransactionRefused) return error.code;
    throw error;
  }
}

test('a signed transaction is read as what was signed, with one recipient and with several', async () => {
  const [output] = plain.outputs;
  expect(read(await signed())).toEqual(plain);
  const several: Transfer = { ...plain, outputs: [output, { ...output, amount: 9n }] };
  expect(read(await signed(several))).toEqual(several);
  const free: Transfer = { ...plain, fee: { amount: 0n, gas: 1n } };
  expect(read(await signed(free))).toEqual(free);
});

test('a signature for another chain or another account number is refused', async () => {
  expect(refusal(await signed({ chainId: 'other' }))).toBe(4);
  expect(refusal(await signed({ accountNumber: 8n }))).toBe(4);
});

test('a signature that is missing, changed, doubled or in its second form is refused', async () => {
  const raw = TxRaw.decode(await signed());
  const signature = raw.signatures[0]!;
  const s = secp256k1.Signature.fromCompact(signature);
  const second = new secp256k1.Signature(s.r, secp256k1.CURVE.n - s.s).toCompactRawBytes();
  const changed = Uint8Array.from(signature, (byte, at) => (at === 40 ? byte ^ 1 : byte));
  for (const signatures of [[], [changed], [signature, signature], [second], [signature.subarray(1)]]) {
    expect(refusal(TxRaw.encode({ ...raw, signatures }).finish())).toBe(4);
  }
});

test('an address of another chain, in capitals or with a wrong checksum is refused', async () => {
  const [{ address }] = plain.outputs;
  const foreign = addressOf(await keys.publicKey({ wallet: 0 }), 'cosmos');
  const misspelt = address.replace(/.$/, address.endsWith('q') ? 'p' : 'q');
  for (const wrong of [foreign, misspelt, address.toUpperCase(), '']) {
    expect(refusal(await signed({ outputs: [{ address: wrong, amount: 5n }] }))).toBe(7);
  }
});

test('a memo above the limit is refused by its bytes', async () => {
  expect(refusal(await signed({ memo: 'é'.repeat(128) }))).toBeUndefined();
  expect(refusal(await signed({ memo: 'é'.repeat(129) }))).toBe(12);
});

test('unknown fields, wherever they are, and members that a transfer does not have are refused', async () => {
  const bytes = await signed();
  const raw = TxRaw.decode(bytes);
  const unknown = Buffer.from([0xf8, 0x07, 1]);
  const body = TxBody.decode(raw.bodyBytes);
  const authInfo = AuthInfo.decode(raw.authInfoBytes);
  const changes = [
    Buffer.concat([bytes, unknown]),
    TxRaw.encode({ ...raw, bodyBytes: Buffer.concat([raw.bodyBytes, unknown]) }).finish(),
    TxRaw.encode({ ...raw, authInfoBytes: Buffer.concat([raw.authInfoBytes, unknown]) }).finish(),
    TxRaw.encode({
      ...raw,
      bodyBytes: TxBody.encode({ ...body, extensionOptions: [{ typeUrl: '/x', value: new Uint8Array() }] }).finish(),
    }).finish(),
    TxRaw.encode({
      ...raw,
      authInfoBytes: AuthInfo.encode({ ...authInfo, fee: { ...authInfo.fee!, granter: plain.sender } }).finish(),
    }).finish(),
  ];
  for (const changed of changes) expect(refusal(changed)).toBe(2);
});

test('several messages, other messages and several signers are refused', async () => {
  const raw = TxRaw.decode(await signed());
  const body = TxBody.decode(raw.bodyBytes);
  const authInfo = AuthInfo.decode(raw.authInfoBytes);
  const [message] = body.messages;
  for (const messages of [[], [message!, message!], [{ ...message!, typeUrl: '/cosmos.bank.v1beta1.MsgBurn' }]]) {
    expect(refusal(TxRaw.encode({ ...raw, bodyBytes: TxBody.encode({ ...body, messages }).finish() }).finish())).toBe(
      18,
    );
  }
  const signerInfos = [...authInfo.signerInfos, ...authInfo.signerInfos];
  const authInfoBytes = AuthInfo.encode({ ...authInfo, signerInfos }).finish();
  expect(refusal(TxRaw.encode({ ...raw, authInfoBytes }).finish())).toBe(18);
});

test('any change of one byte, any cut and any bytes at random are refused, and nothing else is thrown', async () => {
  const bytes = await signed();
  await checkProperty(
    'finance/read-transaction changes',
    500,
    fc.property(fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 }), (at, mask) => {
      const changed = Uint8Array.from(bytes, (byte, place) => (place === at ? byte ^ mask : byte));
      expect(refusal(changed)).toBeDefined();
      expect(refusal(bytes.subarray(0, at))).toBeDefined();
    }),
  );
  const anyBytes = fc.uint8Array({ maxLength: 300 });
  const isRefused = fc.property(anyBytes, (random) => expect(refusal(random)).toBeDefined());
  await checkProperty('finance/read-transaction bytes', 100, isRefused);
});
