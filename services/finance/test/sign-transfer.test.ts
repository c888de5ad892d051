import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringToPath } from '@cosmjs/crypto';
import {
  DirectSecp256k1HdWallet,
  encodePubkey,
  makeAuthInfoBytes,
  makeSignDoc,
  Registry,
  type EncodeObject,
} from '@cosmjs/proto-signing';
import { MsgExec } from 'cosmjs-types/cosmos/authz/v1beta1/tx';
import { MsgMultiSend, MsgSend } from 'cosmjs-types/cosmos/bank/v1beta1/tx';
import { TxRaw } from 'cosmjs-types/cosmos/tx/v1beta1/tx';
import * as fc from 'fast-check';
import { checkProperty } from '@granary/testing/properties';
import { signTransfer, transactionHash } from '../src/chain/sign-transfer';
import type { Output, Transfer } from '@granary/shared/money/cosmos/transaction';
import { addressOf } from '@granary/shared/money/cosmos/address';
import { openKeyFile, type KeyName, type KeyProvider } from '../src/wallets/keys';

const mnemonic = `${'abandon '.repeat(23)}art`;
const prefix = 'celestia';
const registry = new Registry([
  [MsgSend.typeUrl, MsgSend],
  [MsgMultiSend.typeUrl, MsgMultiSend],
  [MsgExec.typeUrl, MsgExec],
]);

let keys: KeyProvider;
beforeAll(async () => {
  const path = join(await mkdtemp(join(tmpdir(), 'granary-signing-')), 'seed');
  await writeFile(path, `${mnemonic}\n`, { mode: 0o600 });
  keys = await openKeyFile(path, { create: false });
});

/** The wallets of CosmJS are slow to derive, so each is made once. */
const wallets = new Map<string, Promise<DirectSecp256k1HdWallet>>();
function walletOfCosmJs(path: string): Promise<DirectSecp256k1HdWallet> {
  let wallet = wallets.get(path);
  if (!wallet) {
    wallet = DirectSecp256k1HdWallet.fromMnemonic(mnemonic, { hdPaths: [stringToPath(path)], prefix });
    wallets.set(path, wallet);
  }
  return wallet;
}

function messageOf({ sender, outputs, denom }: Transfer): EncodeObject {
  const coins = (amount: bigint) => [{ denom, amount: amount.toString() }];
  if (outputs[0].granter !== undefined) {
    const msgs = outputs.map(({ granter, address, amount }) => ({
      typeUrl: MsgSend.typeUrl,
      value: MsgSend.encode({ fromAddress: granter!, toAddress: address, amount: coins(amount) }).finish(),
    }));
    return { typeUrl: MsgExec.typeUrl, value: { grantee: sender, msgs } };
  }
  if (outputs.length === 1) {
    const [{ address, amount }] = outputs;
    return { typeUrl: MsgSend.typeUrl, value: { fromAddress: sender, toAddress: address, amount: coins(amount) } };
  }
  const total = outputs.reduce((sum, { amount }) => sum + amount, 0n);
  return {
    typeUrl: MsgMultiSend.typeUrl,
    value: {
      inputs: [{ address: sender, coins: coins(total) }],
      outputs: outputs.map(({ address, amount }) => ({ address, coins: coins(amount) })),
    },
  };
}

/** What CosmJS signs for the same transaction, with keys that it derives from the mnemonic itself. */
async function signedByCosmJs(path: string, transfer: Transfer): Promise<Buffer> {
  const wallet = await walletOfCosmJs(path);
  const [account] = await wallet.getAccounts();
  expect(account!.address).toBe(transfer.sender);
  const bodyBytes = registry.encodeTxBody({
    messages: [messageOf(transfer)],
    memo: transfer.memo,
    timeoutHeight: transfer.timeoutHeight,
  });
  const value = Buffer.from(account!.pubkey).toString('base64');
  const { amount, gas } = transfer.fee;
  const authInfo = makeAuthInfoBytes(
    [{ pubkey: encodePubkey({ type: 'tendermint/PubKeySecp256k1', value }), sequence: transfer.sequence }],
    amount === 0n ? [] : [{ denom: transfer.denom, amount: amount.toString() }],
    Number(gas),
    undefined,
    undefined,
  );
  const signDoc = makeSignDoc(bodyBytes, authInfo, transfer.chainId, Number(transfer.accountNumber));
  const { signature, signed } = await wallet.signDirect(transfer.sender, signDoc);
  return Buffer.from(
    TxRaw.encode({
      bodyBytes: signed.bodyBytes,
      authInfoBytes: signed.authInfoBytes,
      signatures: [Buffer.from(signature.signature, 'base64')],
    }).finish(),
  );
}

const safe = BigInt(Number.MAX_SAFE_INTEGER);
const outputs = fc.array(
  fc.record({
    address: fc.uint8Array({ minLength: 33, maxLength: 33 }).map((key) => addressOf(key, prefix)),
    amount: fc.oneof(fc.bigInt(1n, 1000n), fc.bigInt(1n, safe)),
  }),
  { minLength: 1, maxLength: 100, size: 'max' },
);
const granters = fc.uint8Array({ minLength: 33, maxLength: 33 }).map((key) => addressOf(key, prefix));
const generated = fc.record({
  key: fc.oneof(
    fc.constantFrom<KeyName>('hot', 'broker'),
    fc.integer({ min: 0, max: 3 }).map((wallet): KeyName => ({ wallet })),
  ),
  chainId: fc.constantFrom('celestia', 'mocha-5', 'granary-simulated'),
  accountNumber: fc.oneof(fc.constant(0n), fc.bigInt(0n, safe)),
  sequence: fc.oneof(fc.bigInt(0n, 300n), fc.bigInt(0n, 2n ** 64n - 1n)),
  // One output, several, and those of granters are different messages, so each is a third of the runs.
  outputs: fc.oneof(
    outputs.map((list) => list.slice(0, 1)),
    outputs,
    fc.tuple(outputs, granters).map(([list, granter]) => list.map((output): Output => ({ ...output, granter }))),
  ),
  denom: fc.constantFrom('utia', 'stake'),
  memo: fc.string({ unit: 'grapheme', maxLength: 60 }),
  fee: fc.record({ amount: fc.bigInt(0n, safe), gas: fc.bigInt(0n, safe) }),
  timeoutHeight: fc.bigInt(1n, safe),
});

const pathOf = (key: KeyName) => {
  if (typeof key === 'object') return `m/44'/118'/0'/0/${key.wallet.toString()}`;
  return key === 'hot' ? "m/44'/118'/1'/0/0" : "m/44'/118'/2'/0/0";
};
const addressOfKey = async (key: KeyName) => addressOf(await keys.publicKey(key), prefix);

test('a transaction has the bytes that CosmJS signs for it from the same seed', async () => {
  await checkProperty(
    'finance/sign-transfer',
    400,
    fc.asyncProperty(generated, async ({ key, outputs: list, ...rest }) => {
      const transfer: Transfer = { ...rest, outputs: [list[0]!, ...list.slice(1)], sender: await addressOfKey(key) };
      const signed = await signTransfer(keys, key, transfer);
      expect(Buffer.from(signed.bytes).toString('hex')).toBe(
        (await signedByCosmJs(pathOf(key), transfer)).toString('hex'),
      );
      expect(signed.hash).toBe(transactionHash(signed.bytes));
      expect(signed.hash).toMatch(/^[0-9A-F]{64}$/);
    }),
  );
});

const plain = async (): Promise<Transfer> => ({
  chainId: 'granary-simulated',
  accountNumber: 1n,
  sequence: 0n,
  sender: await addressOfKey('hot'),
  outputs: [{ address: await addressOfKey({ wallet: 0 }), amount: 5n }],
  denom: 'utia',
  memo: '',
  fee: { amount: 400n, gas: 100_000n },
  timeoutHeight: 50n,
});

test('the same transaction has the same bytes each time, and any change of it another hash', async () => {
  const transfer = await plain();
  const { hash } = await signTransfer(keys, 'hot', transfer);
  expect((await signTransfer(keys, 'hot', { ...transfer })).hash).toBe(hash);
  const changes: Array<Partial<Transfer>> = [
    { chainId: 'celestia' },
    { accountNumber: 2n },
    { sequence: 1n },
    { outputs: [{ ...transfer.outputs[0], amount: 6n }] },
    { denom: 'stake' },
    { memo: 'x' },
    { fee: { amount: 401n, gas: 100_000n } },
    { timeoutHeight: 51n },
  ];
  const hashes = await Promise.all(
    changes.map(async (change) => (await signTransfer(keys, 'hot', { ...transfer, ...change })).hash),
  );
  expect(new Set([hash, ...hashes]).size).toBe(changes.length + 1);
});

test('nothing is signed for a sender that the key does not own', async () => {
  const transfer = await plain();
  await expect(signTransfer(keys, { wallet: 0 }, transfer)).rejects.toThrow(/not the address of the key/);
});

test('nothing is signed without a timeout height, for nothing, or beyond 64 bits', async () => {
  const transfer = await plain();
  const [output] = transfer.outputs;
  const wrong: Array<Partial<Transfer>> = [
    { timeoutHeight: 0n },
    { outputs: [{ ...output, amount: 0n }] },
    { outputs: [output, { ...output, amount: -1n }] },
    { outputs: [output, { ...output, amount: 2n ** 64n - 1n }] },
    { sequence: -1n },
    { sequence: 2n ** 64n },
    { accountNumber: 2n ** 64n },
    { timeoutHeight: 2n ** 64n },
    { fee: { amount: -1n, gas: 1n } },
    { fee: { amount: 1n, gas: 2n ** 64n } },
  ];
  for (const change of wrong) {
    await expect(signTransfer(keys, 'hot', { ...transfer, ...change })).rejects.toThrow(RangeError);
  }
});

test('a key provider hands out no private key, and its branches share none', async () => {
  expect(Object.keys(keys).sort()).toEqual(['fingerprint', 'publicKey', 'sign']);
  const publicKeys = await Promise.all(
    (['hot', { wallet: 0 }, { wallet: 1 }] as KeyName[]).map(async (key) =>
      Buffer.from(await keys.publicKey(key)).toString('hex'),
    ),
  );
  expect(new Set(publicKeys).size).toBe(3);
  await expect(keys.sign('hot', new Uint8Array(31))).rejects.toThrow();
});
