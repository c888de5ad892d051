import { randomBytes } from 'node:crypto';
import * as fc from 'fast-check';
import { ServiceError } from '@granary/shared/errors';
import { checkProperty, checkUntil } from '@granary/testing/properties';
import { size } from '@granary/testing/size';
import type { PrivateKeyAccount } from 'viem' with { 'resolution-mode': 'import' };
import { transferTypes } from '@granary/testing/x402-client';
import { parseEvmAssets } from '../src/schemes/evm/assets';
import { Verifier } from '../src/verify/verifier';
import { EvmExact } from '../src/schemes/evm/verify';

const proof = 'payments/official-facilitator';
const paymentCount = size({ run: 500, long: 200_000 });
const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type JsonObject = { [key: string]: Json };

interface Envelope extends JsonObject {
  x402Version: Json;
  paymentPayload: JsonObject;
  paymentRequirements: JsonObject;
}

const networks = [
  { caip2: 'eip155:84532', name: 'base-sepolia', asset: '0x036CbD53842c5426634e7929541eC2318f3dCF7e', domain: 'USDC' },
  { caip2: 'eip155:8453', name: 'base', asset: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913', domain: 'USD Coin' },
] as const;
const payTo = '0x209693Bc6afc0C5328bA36FaF03C514EF312287C';
let clock = new Date();
const evmAssets = parseEvmAssets('usdc,usdc-test');
const verifier = new Verifier([new EvmExact(evmAssets)], () => clock);
const nowSeconds = () => Math.floor(Date.now() / 1_000);

let payers: PrivateKeyAccount[];
let official: (envelope: Envelope) => Promise<boolean>;
beforeAll(async () => {
  const { privateKeyToAccount } = await import('viem/accounts');
  payers = Array.from({ length: 4 }, () => privateKeyToAccount(`0x${randomBytes(32).toString('hex')}`));
  official = await officialFacilitator();
});

/**
 * The official facilitator on a chain where every account has money, no nonce was used, and only tokens are contracts.
 */
async function officialFacilitator(): Promise<typeof official> {
  const [{ x402Facilitator }, { ExactEvmScheme }, { ExactEvmSchemeV1 }, { verifyTypedData }] = await Promise.all([
    import('@x402/core/facilitator'),
    import('@x402/evm/exact/facilitator'),
    import('@x402/evm/exact/v1/facilitator'),
    import('viem'),
  ]);
  const assets = new Set<string>(networks.map(({ asset }) => asset.toLowerCase()));
  const never = () => Promise.reject(new Error('nothing is sent'));
  const signer = {
    getAddresses: () => ['0x0000000000000000000000000000000000000001'] as const,
    getCode: ({ address }: { address: string }) =>
      Promise.resolve(assets.has(address.toLowerCase()) ? ('0x60' as const) : undefined),
    verifyTypedData: (given: object) => verifyTypedData(given as Parameters<typeof verifyTypedData>[0]),
    readContract: () => Promise.resolve(true),
    writeContract: never,
    sendTransaction: never,
    waitForTransactionReceipt: never,
  };
  const facilitator = new x402Facilitator();
  facilitator.register([...networks.map(({ caip2 }) => caip2)], new ExactEvmScheme(signer));
  facilitator.registerV1([...networks.map(({ name }) => name)] as never, new ExactEvmSchemeV1(signer));
  return async ({ paymentPayload, paymentRequirements }) => {
    // It throws for much of what is not well-formed, and a server of it answers 500 then.
    try {
      return (await facilitator.verify(paymentPayload as never, paymentRequirements as never)).isValid;
    } catch {
      return false;
    }
  };
}

/** Undefined where we find the payment valid, else our reason. */
async function ourRefusal(envelope: Envelope): Promise<string | undefined> {
  try {
    const finding = await verifier.verify(Buffer.from(JSON.stringify(envelope)));
    return finding.isValid ? undefined : `${finding.invalidReason}: ${finding.invalidMessage}`;
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    return `malformed: ${JSON.stringify(error.details)}`;
  }
}

const payments = new Map<string, Promise<Envelope>>();

/** The same, made once. */
async function keptPayment(...given: Parameters<typeof payment>): Promise<Envelope> {
  const name = JSON.stringify(given);
  const kept = payments.get(name) ?? payment(...given);
  payments.set(name, kept);
  return structuredClone(await kept);
}

/** A payment as an official client makes it, with `changes` that are signed. */
async function payment(version: 1 | 2, payer: number, network: number, changes: JsonObject): Promise<Envelope> {
  const { caip2, name, asset, domain } = networks[network]!;
  const account = payers[payer]!;
  const authorization = {
    from: account.address,
    to: payTo,
    value: '10000',
    validAfter: '0',
    validBefore: String(nowSeconds() + 300),
    nonce: `0x${randomBytes(32).toString('hex')}`,
    ...changes,
  };
  const signature = await account.signTypedData({
    domain: { name: domain, version: '2', chainId: Number(caip2.split(':')[1]), verifyingContract: asset },
    types: transferTypes,
    primaryType: 'TransferWithAuthorization',
    message: authorization,
  });
  const shared = { scheme: 'exact', network: version === 1 ? name : caip2 };
  const extra = { name: domain, version: '2' };
  const paymentRequirements: JsonObject = {
    ...shared,
    asset,
    payTo,
    maxTimeoutSeconds: 300,
    extra,
    ...(version === 1
      ? { maxAmountRequired: '10000', resource: 'http://127.0.0.1/x', description: '', mimeType: 'application/json' }
      : { amount: '10000' }),
  };
  const chosen = version === 1 ? shared : { accepted: structuredClone(paymentRequirements) };
  const paymentPayload = { x402Version: version, ...chosen, payload: { signature, authorization } } as JsonObject;
  return { x402Version: version, paymentPayload, paymentRequirements };
}

const signedChanges = fc.oneof(
  { weight: 6, arbitrary: fc.constant((): JsonObject => ({})) },
  {
    weight: 4,
    arbitrary: fc.constantFrom<() => JsonObject>(
      ...[() => ({ value: '9999' }), () => ({ value: '10001' }), () => ({ value: '0' })],
      ...[() => ({ to: payers[0]!.address }), () => ({ from: payers[0]!.address }), () => ({ from: payTo })],
      ...[-1, 0, 3, 5, 6, 7, 359, 361, 86_400].map((s) => () => ({ validBefore: String(nowSeconds() + s) })),
      ...[-1, 0, 1, 60].map((s) => () => ({ validAfter: String(nowSeconds() + s) })),
      () => ({ nonce: `0x${'AB'.repeat(32)}` }),
    ),
  },
);

const values: Json[] = [
  null,
  true,
  0,
  1,
  2,
  3,
  -1,
  1.5,
  1e4,
  1e21,
  '',
  '0',
  '1',
  '10000',
  '1e4',
  '0x10',
  '0x2710',
  ' 10000',
  '010000',
  '+10000',
  '-1',
  '1.0',
  '10001',
  '9999',
  'exact',
  'upto',
  'base',
  'base-sepolia',
  'eip155:8453',
  'eip155:84532',
  'eip155:1',
  'USDC',
  'USD Coin',
  '2',
  '0x',
  `0x${'00'.repeat(65)}`,
  `0x${'00'.repeat(32)}`,
  `0x${'00'.repeat(20)}`,
  payTo,
  payTo.toLowerCase(),
  payTo.toUpperCase(),
  networks[0].asset,
  networks[1].asset,
  'permit2',
  'eip3009',
  [],
  {},
  ['10000'],
  { name: 'USDC' },
  (2n ** 256n).toString(),
  (2n ** 256n - 1n).toString(),
  '💰',
];

type Mutation = (envelope: Envelope, at: number, value: Json) => void;

/** All places in an envelope where a member is. */
function places(object: JsonObject): Array<{ object: JsonObject; key: string }> {
  return Object.entries(object).flatMap(([key, value]) => [
    { object, key },
    ...(typeof value === 'object' && value !== null && !Array.isArray(value) ? places(value) : []),
  ]);
}
const placeOf = (envelope: Envelope, at: number) => {
  const all = places(envelope);
  return all[at % all.length]!;
};

const textOf = (value: Json | undefined): string => (typeof value === 'string' ? value : '');

const payloadOf = ({ paymentPayload }: Envelope): JsonObject | undefined => {
  const { payload } = paymentPayload ?? {};
  return typeof payload === 'object' && payload !== null && !Array.isArray(payload) ? payload : undefined;
};

/** Another form of the signature, or of a part of it. */
const signatureForms: Array<(r: string, s: bigint, v: number) => string> = [
  (r, s, v) => r + hex(order - s) + byte(55 - v),
  (r, s, v) => r + hex(s) + byte(v - 27),
  (r, s, v) => r + hex(s) + byte(55 - v),
  (r, s, v) => r + hex(order - s) + byte(v),
  (r, s, v) => r + hex(s | (BigInt(v - 27) << 255n)),
  (r, s, v) => `${r}${hex(s)}${byte(v)}00`,
  (r, s) => r + hex(s),
  (r, s, v) => r + hex(s + order) + byte(v),
  (r, s, v) => (r + hex(s) + byte(v)).toUpperCase().replace('0X', '0x'),
  (r, s, v) => r + hex(s) + byte(v + 35),
];
const hex = (value: bigint) => value.toString(16).padStart(64, '0').slice(-64);
const byte = (value: number) => (value & 0xff).toString(16).padStart(2, '0');

const mutations: Record<string, Mutation> = {
  none: () => {},
  drop: (envelope, at) => {
    const { object, key } = placeOf(envelope, at);
    delete object[key];
  },
  replace: (envelope, at, value) => {
    const { object, key } = placeOf(envelope, at);
    object[key] = structuredClone(value);
  },
  add: (envelope, at, value) => {
    placeOf(envelope, at).object[`more${at % 3}`] = structuredClone(value);
  },
  case: (envelope, at) => {
    const texts = places(envelope).filter(({ object, key }) => /^0x[0-9a-f]{40,}$/i.test(textOf(object[key])));
    if (texts.length === 0) return;
    const { object, key } = texts[at % texts.length]!;
    const text = object[key] as string;
    object[key] = at % 2 === 0 ? text.toLowerCase() : `0x${text.slice(2).toUpperCase()}`;
  },
  digit: (envelope, at) => {
    const texts = places(envelope).filter(({ object, key }) => /\d/.test(textOf(object[key])));
    if (texts.length === 0) return;
    const { object, key } = texts[at % texts.length]!;
    const text = object[key] as string;
    const digits = [...text.matchAll(/\d/g)].map(({ index }) => index);
    const index = digits[at % digits.length]!;
    object[key] = text.slice(0, index) + String((Number(text[index]) + 1) % 10) + text.slice(index + 1);
  },
  number: (envelope, at) => {
    const authorization = payloadOf(envelope)?.['authorization'] as JsonObject | undefined;
    const key = ['value', 'validAfter', 'validBefore'][at % 3]!;
    if (authorization && typeof authorization[key] === 'string') authorization[key] = Number(authorization[key]);
  },
  signature: (envelope, at) => {
    const payload = payloadOf(envelope);
    const signature = payload?.['signature'];
    if (!payload || typeof signature !== 'string' || !/^0x[0-9a-f]{130}$/.test(signature)) return;
    const form = signatureForms[at % signatureForms.length]!;
    payload['signature'] = form(
      signature.slice(0, 66),
      BigInt(`0x${signature.slice(66, 130)}`),
      parseInt(signature.slice(130), 16),
    );
  },
};

/**
 * Where we are stricter than the official facilitator, by our reason. Nothing else may differ, and each of these does.
 */
const stricter: Record<string, RegExp> = {
  'a signature has one form': /^invalid_exact_evm_payload_signature: /,
  'accepted equals the requirements (version 2)': /paymentPayload\.accepted must equal/,
  'the version is stated in the payment, as the same number as in the envelope': /^invalid_x402_version: /,
  'members have their types, and amounts and times one spelling':
    /^(invalid_payload|invalid_payment_requirements): payment\S+ must be /,
  'the time of a payment is bounded': /^invalid_exact_evm_payload_authorization_valid_before: /,
  'the start of a payment lies in the past': /^invalid_exact_evm_payload_authorization_valid_after: /,
  'payTo and asset are addresses, whose capitals are their checksum (EIP-55)':
    /^invalid_payment_requirements: (payTo|asset) must be an address/,
};

test(`of ${paymentCount} payments none is valid here that the official facilitator refuses, and where we refuse more a rule says so`, async () => {
  const seen = new Map<string, number>();
  let both = 0;
  let neither = 0;
  const mutation = fc.tuple(fc.constantFrom(...Object.keys(mutations)), fc.nat(10_000), fc.constantFrom(...values));
  const cases = fc.record({
    version: fc.constantFrom<1 | 2>(1, 2),
    payer: fc.nat(3),
    network: fc.nat(1),
    changes: signedChanges,
    applied: fc.array(mutation, { maxLength: 2 }),
  });
  const check = fc.asyncProperty(cases, async ({ version, payer, network, changes, applied }) => {
    const envelope = await keptPayment(version, payer, network, changes());
    for (const [name, at, value] of applied) mutations[name]!(envelope, at, value);
    const read = JSON.parse(JSON.stringify(envelope)) as Envelope;
    // The official one has its own clock, which may go on by a second in between.
    clock = new Date();
    const earlier = await ourRefusal(envelope);
    const theirs = await official(read);
    clock = new Date();
    const refusal = earlier ?? (await ourRefusal(envelope));
    if (!theirs) {
      expect(refusal).toBeDefined();
      neither += 1;
    } else if (refusal === undefined) both += 1;
    else {
      const rule = Object.entries(stricter).find(([, pattern]) => pattern.test(refusal))?.[0];
      if (rule === undefined) throw new Error(`no rule says why this is refused: ${refusal}`);
      seen.set(rule, (seen.get(rule) ?? 0) + 1);
    }
  });
  await checkProperty(proof, paymentCount, check);
  await checkUntil(proof, 20_000, check, () => Object.keys(stricter).every((rule) => seen.has(rule)));
  expect(both).toBeGreaterThan(paymentCount / 20);
  expect(neither).toBeGreaterThan(paymentCount / 20);
  expect([...seen.keys()].sort()).toEqual(Object.keys(stricter).sort());
});
