import { createHash } from 'node:crypto';
import { secp256k1 } from '@noble/curves/secp256k1';
import { MsgExec } from 'cosmjs-types/cosmos/authz/v1beta1/tx';
import { MsgSend } from 'cosmjs-types/cosmos/bank/v1beta1/tx';
import { TxBody, TxRaw } from 'cosmjs-types/cosmos/tx/v1beta1/tx';
import * as fc from 'fast-check';
import { checkProperty } from '@granary/testing/properties';
import { size } from '@granary/testing/size';
import { encodeSignDoc, type Transfer } from '@granary/shared/money/cosmos/transaction';
import { newCosmosPayer, signCosmos } from '@granary/testing/cosmos-payer';
import { Verifier, type Finding } from '../src/verify/verifier';
import { CosmosExact } from '../src/schemes/cosmos/verify';

const cosmosNetworks = () => [
  { network: 'cosmos:celestia', prefix: 'celestia', denom: 'utia', memoBytesMax: 256 },
  { network: 'cosmos:osmosis-1', prefix: 'osmo', denom: 'uosmo', memoBytesMax: 256 },
];
const verifier = new Verifier([new CosmosExact(cosmosNetworks)], () => new Date());
const payer = newCosmosPayer();
const payTo = newCosmosPayer().address;
const quoteId = 'quote-1';

const transfer: Omit<Transfer, 'sender'> = {
  chainId: 'celestia',
  accountNumber: 7n,
  sequence: 3n,
  outputs: [{ address: payTo, amount: 250_000n }],
  denom: 'utia',
  memo: quoteId,
  fee: { amount: 400n, gas: 100_000n },
  timeoutHeight: 0n,
};

const bytesOf = (changes: Partial<typeof transfer> = {}) => signCosmos(payer, { ...transfer, ...changes });

function envelope(version: 1 | 2, bytes: Buffer, payload: object = {}, requirementChanges: object = {}) {
  const amount = version === 1 ? { maxAmountRequired: '250000' } : { amount: '250000' };
  const requirement = {
    scheme: 'exact',
    network: 'cosmos:celestia',
    asset: 'utia',
    payTo,
    maxTimeoutSeconds: 300,
    ...amount,
    extra: { quoteId },
    ...requirementChanges,
  };
  const chosen =
    version === 1 ? { scheme: 'exact', network: requirement.network } : { accepted: structuredClone(requirement) };
  return {
    paymentPayload: {
      x402Version: version,
      ...chosen,
      payload: { signedTx: bytes.toString('base64'), accountNumber: '7', ...payload },
    },
    paymentRequirements: requirement,
  };
}

const find = (body: object): Promise<Finding> => verifier.verify(Buffer.from(JSON.stringify(body)));
const reasonOf = async (body: object) => {
  const finding = await find(body);
  return finding.isValid ? 'valid' : finding.invalidReason;
};
const prefix = 'invalid_exact_cosmos_payload';

test('a signed MsgSend with the quote as its memo is valid, in both versions, under both names, with and without a timeout', async () => {
  const valid = { isValid: true, payer: payer.address };
  for (const version of [1, 2] as const) {
    expect(await find(envelope(version, bytesOf()))).toEqual(valid);
    expect(await find(envelope(version, bytesOf({ timeoutHeight: 99n }), { accountNumber: 7 }))).toEqual(valid);
  }
  const { paymentRequirements, paymentPayload } = envelope(2, bytesOf());
  const { signedTx: transaction, accountNumber } = paymentPayload.payload;
  const named = { ...paymentPayload, payload: { transaction, accountNumber } };
  expect(await find({ paymentRequirements, paymentPayload: named })).toEqual(valid);
  expect(await reasonOf(envelope(2, bytesOf({ memo: 'anything' }), {}, { extra: {} }))).toBe('valid');
});

test('a payment with other terms than those that are required is refused with the reason, though its signature fits', async () => {
  const other = newCosmosPayer().address;
  const changes: Array<[Partial<typeof transfer>, string]> = [
    [{ outputs: [{ address: other, amount: 250_000n }] }, `${prefix}_recipient_mismatch`],
    [{ outputs: [transfer.outputs[0], { address: other, amount: 1n }] }, `${prefix}_recipient_mismatch`],
    [{ outputs: [{ address: payTo, amount: 249_999n }] }, `${prefix}_amount_mismatch`],
    [{ outputs: [{ address: payTo, amount: 250_001n }] }, `${prefix}_amount_mismatch`],
    [{ denom: 'uatom' }, `${prefix}_amount_mismatch`],
    [{ memo: 'quote-2' }, `${prefix}_memo_mismatch`],
    [{ memo: '' }, `${prefix}_memo_mismatch`],
    [{ chainId: 'mocha-4' }, `${prefix}_signature`],
    [{ accountNumber: 8n }, `${prefix}_signature`],
    [{ memo: 'x'.repeat(257) }, `${prefix}_transaction`],
  ];
  for (const [change, reason] of changes) {
    expect([Object.keys(change), await reasonOf(envelope(2, bytesOf(change)))]).toEqual([Object.keys(change), reason]);
  }
  expect(await reasonOf(envelope(2, bytesOf(), { accountNumber: '8' }))).toBe(`${prefix}_signature`);
  const osmosis = { network: 'cosmos:osmosis-1' };
  expect(await reasonOf(envelope(2, bytesOf(), {}, osmosis))).toBe(`${prefix}_transaction`);
  expect(await reasonOf(envelope(2, bytesOf(), {}, { network: 'cosmos:unknown' }))).toBe('invalid_network');
});

test('what is no payload of one transaction is refused', async () => {
  const text = bytesOf().toString('base64');
  const wrong: object[] = [
    { accountNumber: undefined },
    { accountNumber: '-1' },
    { accountNumber: '1e1' },
    { accountNumber: '0x7' },
    { accountNumber: (2n ** 64n).toString() },
    { signedTx: undefined },
    { signedTx: 7 },
    { transaction: text },
    { signedTx: `${text}\n` },
    { signedTx: text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '') + '-' },
    { signedTx: Buffer.alloc(5_000).toString('base64') },
    { signedTx: undefined, txHash: 'A'.repeat(64), sender: payer.address, timestamp: 1 },
  ];
  for (const payload of wrong) {
    expect([payload, await reasonOf(envelope(1, bytesOf(), payload))]).toEqual([payload, 'invalid_payload']);
  }
  expect(await reasonOf(envelope(1, Buffer.alloc(0)))).toBe(`${prefix}_transaction`);
});

/** Signs parts of a transaction that the encoder of transfers would not make. */
function signedParts(bodyBytes: Uint8Array, authInfoBytes: Uint8Array): Buffer {
  const signDoc = encodeSignDoc({ body: bodyBytes, authInfo: authInfoBytes }, 'celestia', 7n);
  const digest = createHash('sha256').update(signDoc).digest();
  const signatures = [secp256k1.sign(digest, payer.secret, { lowS: true }).toBytes('compact')];
  return Buffer.from(TxRaw.encode({ bodyBytes, authInfoBytes, signatures }).finish());
}

test('a transaction that is signed and holds more than one MsgSend is refused', async () => {
  const raw = TxRaw.decode(bytesOf());
  const body = TxBody.decode(raw.bodyBytes);
  const [send] = body.messages;
  const exec = {
    typeUrl: MsgExec.typeUrl,
    value: MsgExec.encode({ grantee: payer.address, msgs: [send!] }).finish(),
  };
  const bodies = [
    { ...body, messages: [send!, send!] },
    { ...body, messages: [] },
    { ...body, messages: [exec] },
    { ...body, messages: [{ ...send!, typeUrl: '/cosmos.bank.v1beta1.MsgOther' }] },
    { ...body, extensionOptions: [send!] },
    { ...body, nonCriticalExtensionOptions: [send!] },
  ].map((each) => TxBody.encode(TxBody.fromPartial(each)).finish());
  const unknownField = Buffer.concat([raw.bodyBytes, Buffer.from([0xf8, 0x07, 0x01])]);
  const coins = {
    amount: [
      { denom: 'utia', amount: '250000' },
      { denom: 'uatom', amount: '1' },
    ],
  };
  const twoCoins = MsgSend.encode({ fromAddress: payer.address, toAddress: payTo, ...coins }).finish();
  const ofTwoCoins = TxBody.encode({ ...body, messages: [{ ...send!, value: twoCoins }] }).finish();
  for (const bodyBytes of [...bodies, unknownField, ofTwoCoins]) {
    const bytes = signedParts(bodyBytes, raw.authInfoBytes);
    expect(await reasonOf(envelope(2, bytes))).toBe(`${prefix}_transaction`);
  }
  // Outside of what is signed, too.
  const appended = Buffer.concat([bytesOf(), Buffer.from([0xf8, 0x07, 0x01])]);
  expect(await reasonOf(envelope(2, appended))).toBe(`${prefix}_transaction`);
});

test('a signature has one form', async () => {
  const raw = TxRaw.decode(bytesOf());
  const [signature] = raw.signatures;
  const s = BigInt(`0x${Buffer.from(signature!.subarray(32)).toString('hex')}`);
  const highS = Buffer.from((secp256k1.CURVE.n - s).toString(16).padStart(64, '0'), 'hex');
  const forms = [
    [Buffer.concat([signature!.subarray(0, 32), highS])],
    [Buffer.concat([signature!, Buffer.alloc(1)])],
    [signature!.subarray(0, 63)],
    [Buffer.alloc(64)],
    [signature!, signature!],
    [],
  ];
  for (const signatures of forms) {
    const bytes = Buffer.from(TxRaw.encode({ ...raw, signatures }).finish());
    expect(await reasonOf(envelope(2, bytes))).toMatch(/^invalid_exact_cosmos_payload_(signature|transaction)$/);
  }
});

test('a transaction with any bit changed is not valid', async () => {
  const bytes = bytesOf();
  await checkProperty(
    'payments/cosmos-exact',
    size({ run: 250, long: 1_000 }),
    fc.asyncProperty(fc.integer({ min: 0, max: bytes.length * 8 - 1 }), async (bit) => {
      const changed = Buffer.from(bytes);
      changed[bit >> 3]! ^= 1 << (bit & 7);
      expect(await reasonOf(envelope(2, changed))).not.toBe('valid');
    }),
  );
});
