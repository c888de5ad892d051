import type { PrivateKeyAccount } from 'viem' with { 'resolution-mode': 'import' };
import { simulatedName, simulatedNetwork } from '@granary/testing/x402-client';
import { expectProblem } from '../support/problem-shape';
import { sendRaw } from '../support/raw-http';
import { borrowGranary, send, transports, type Granary } from '../support/granary';

const usdc = '0x036CbD53842c5426634e7929541eC2318f3dCF7e';
const payTo = '0x209693Bc6afc0C5328bA36FaF03C514EF312287C';
let payer: PrivateKeyAccount;
const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;

interface Finding {
  isValid: boolean;
  invalidReason?: string;
  invalidMessage?: string;
  payer?: string;
}

const types = {
  TransferWithAuthorization: [
    { name: 'from', type: 'address' },
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'validAfter', type: 'uint256' },
    { name: 'validBefore', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
};

interface Terms {
  from: string;
  to: string;
  value: string;
  validAfter: string | number;
  validBefore: string | number;
  nonce: string;
}

const nowSeconds = (): number => Math.floor(Date.now() / 1_000);

/** A payment that an official client would make, with a signature that fits what is changed. */
async function evm(version: 1 | 2, changes: Partial<Terms> = {}, domain: object = {}) {
  const authorization: Terms = {
    from: payer.address,
    to: payTo,
    value: '10000',
    validAfter: '0',
    validBefore: `${nowSeconds() + 300}`,
    nonce: `0x${'ab'.repeat(32)}`,
    ...changes,
  };
  const signature: string = await payer.signTypedData({
    domain: { name: 'USDC', version: '2', chainId: 84532, verifyingContract: usdc, ...domain },
    types,
    primaryType: 'TransferWithAuthorization',
    message: { ...authorization },
  });
  const network = version === 1 ? 'base-sepolia' : 'eip155:84532';
  const requirement = {
    scheme: 'exact',
    network,
    asset: usdc,
    payTo,
    maxTimeoutSeconds: 300,
    extra: { name: 'USDC', version: '2' },
    ...(version === 1
      ? { maxAmountRequired: '10000', resource: 'http://127.0.0.1/x', description: '', mimeType: 'application/json' }
      : { amount: '10000' }),
  };
  const chosen = version === 1 ? { scheme: 'exact', network } : { accepted: structuredClone(requirement) };
  return {
    x402Version: version,
    paymentPayload: { x402Version: version, ...chosen, payload: { signature, authorization } },
    paymentRequirements: requirement,
  };
}

type Envelope = Awaited<ReturnType<typeof evm>>;

const compact = (signature: string, s: bigint, v: number): string =>
  signature.slice(0, 66) + s.toString(16).padStart(64, '0') + v.toString(16).padStart(2, '0');

const signatureReason = 'invalid_exact_evm_payload_signature';
const undeployedReason = 'invalid_exact_evm_payload_undeployed_smart_wallet';
const beforeReason = 'invalid_exact_evm_payload_authorization_valid_before';

describe.each(transports)('verification of x402 payments (%s)', (transport) => {
  let granary: Granary;
  beforeAll(async () => {
    payer = (await import('viem/accounts')).privateKeyToAccount(`0x${'42'.repeat(32)}`);
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());

  const verify = async (body: object | string): Promise<Finding> => {
    const answer = await send<Finding>(granary.url, 'POST', '/x402/verify', { body });
    expect([answer.status, JSON.stringify(answer.body)]).toEqual([200, answer.text]);
    return answer.body;
  };
  const reason = async (change: (envelope: Envelope) => unknown, made: Promise<Envelope> = evm(2)) => {
    const envelope = await made;
    change(envelope);
    const { isValid, invalidReason, invalidMessage } = await verify(envelope);
    expect([isValid, invalidMessage]).toEqual([false, expect.stringMatching(/^\S.{9,}/)]);
    return invalidReason;
  };
  const none = () => {};

  test('a payment signed by the key of an account is valid, in both versions, and as often as it is asked', async () => {
    for (const version of [1, 2] as const) {
      const envelope = await evm(version);
      for (let n = 0; n < 3; n += 1) expect(await verify(envelope)).toEqual({ isValid: true, payer: payer.address });
    }
    const { x402Version: _, ...withoutVersion } = await evm(1, { validAfter: 1, validBefore: nowSeconds() + 200 });
    expect(await verify(withoutVersion)).toEqual({ isValid: true, payer: payer.address });
    const lower = payer.address.toLowerCase();
    expect(await verify(await evm(2, { from: lower }))).toEqual({ isValid: true, payer: lower });
  });

  test('a payment with other terms than those that are required is refused with the reason, though its signature fits', async () => {
    const expected: Array<[Partial<Terms>, string]> = [
      [{ to: payer.address }, 'invalid_exact_evm_payload_recipient_mismatch'],
      [{ value: '9999' }, 'invalid_exact_evm_payload_authorization_value_mismatch'],
      [{ value: '10001' }, 'invalid_exact_evm_payload_authorization_value_mismatch'],
      [{ validBefore: `${nowSeconds() - 1}` }, beforeReason],
      [{ validBefore: `${nowSeconds() + 86_400}` }, beforeReason],
      [{ validAfter: `${nowSeconds() + 60}` }, 'invalid_exact_evm_payload_authorization_valid_after'],
    ];
    for (const [change, why] of expected) expect([change, await reason(none, evm(2, change))]).toEqual([change, why]);
    expect(await reason(none, evm(1, { value: '10001' }))).toBe('invalid_exact_evm_payload_authorization_value');
    for (const domain of [{ name: 'USD Coin' }, { version: '1' }, { chainId: 8453 }, { verifyingContract: payTo }]) {
      expect([domain, await reason(none, evm(2, {}, domain))]).toEqual([domain, signatureReason]);
    }
  });

  test('a second form of a valid signature, and one of a contract wallet, is refused', async () => {
    const forms: Array<[(signature: string, s: bigint, v: number) => string, string]> = [
      [(text, s, v) => compact(text, order - s, 55 - v), signatureReason],
      [(text, s, v) => compact(text, s, v - 27), signatureReason],
      [(text, s, v) => compact(text, s, 55 - v), signatureReason],
      [(text, s, v) => compact(text, s + (BigInt(v - 27) << 255n), v).slice(0, 130), signatureReason],
      [(text) => compact(text, 0n, 27), signatureReason],
      [(text) => compact(text, order, 28), signatureReason],
      [(text) => `0x${'00'.repeat(32)}${text.slice(66)}`, signatureReason],
      [() => '0x', signatureReason],
      [(text) => `${text}00`, signatureReason],
      [(text) => text + '6492'.repeat(16), undeployedReason],
      [(text) => text.slice(2), 'invalid_payload'],
      [() => `0x${'11'.repeat(5_000)}`, 'invalid_payload'],
    ];
    for (const [form, why] of forms) {
      const changed = await reason(({ paymentPayload: { payload } }) => {
        const { signature } = payload;
        payload.signature = form(
          signature,
          BigInt(`0x${signature.slice(66, 130)}`),
          Number(`0x${signature.slice(130)}`),
        );
      });
      expect([form.toString(), changed]).toEqual([form.toString(), why]);
    }
  });

  test('numbers, addresses and versions in another spelling are refused', async () => {
    for (const value of ['1e4', '0x2710', '', ' 10000', '+10000', '010000', '10000.0', '-1', 10_000, null]) {
      const put = (envelope: Envelope) => Object.assign(envelope.paymentPayload.payload.authorization, { value });
      expect([value, await reason(put)]).toEqual([value, 'invalid_payload']);
      const required = ({ paymentPayload, paymentRequirements }: Envelope) =>
        Object.assign(paymentRequirements, { amount: value }) &&
        Object.assign(paymentPayload, { accepted: paymentRequirements });
      expect([value, await reason(required)]).toEqual([value, 'invalid_payment_requirements']);
    }
    for (const from of [payer.address.replace('0x', '0X'), `0x${payer.address.slice(2).toUpperCase()}`, '0x1', null]) {
      const put = (envelope: Envelope) => Object.assign(envelope.paymentPayload.payload.authorization, { from });
      expect([from, await reason(put)]).toEqual([from, 'invalid_payload']);
    }
    for (const x402Version of [0, 3, '2', 1.5, null]) {
      const put = ({ paymentPayload }: Envelope) => Object.assign(paymentPayload, { x402Version });
      expect([x402Version, await reason(put)]).toEqual([x402Version, 'invalid_x402_version']);
    }
    expect(await reason((envelope) => (envelope.x402Version = 1))).toBe('invalid_x402_version');
  });

  test('what the payment was made for must be what is required, of a kind that is verified here', async () => {
    const both = (change: object) => (envelope: Envelope) => {
      Object.assign(envelope.paymentRequirements, change);
      Object.assign(envelope.paymentPayload, { accepted: structuredClone(envelope.paymentRequirements) });
    };
    const expected: Array<[(envelope: Envelope) => unknown, string]> = [
      [({ paymentRequirements: it }) => (it.payTo = payer.address), 'invalid_payment_requirements'],
      [({ paymentRequirements: it }) => (it.maxTimeoutSeconds = 301), 'invalid_payment_requirements'],
      [({ paymentRequirements: it }) => (it.network = 'eip155:8453'), 'invalid_network'],
      [both({ network: 'eip155:5' }), 'invalid_network'],
      [both({ network: 'base-sepolia' }), 'invalid_network'],
      [both({ network: 'cosmos:celestia' }), 'invalid_network'],
      [both({ scheme: 'upto' }), 'unsupported_scheme'],
      [({ paymentPayload }) => Object.assign(paymentPayload, { accepted: null }), 'invalid_payload'],
      [both({ asset: payTo }), 'invalid_payment_requirements'],
      [both({ extra: { name: 'USD Coin', version: '2' } }), 'invalid_payment_requirements'],
      [both({ extra: {} }), 'invalid_payment_requirements'],
      [both({ extra: { name: 'USDC', version: '2', assetTransferMethod: 'permit2' } }), 'invalid_payment_requirements'],
      [both({ maxTimeoutSeconds: 86_401 }), 'invalid_payment_requirements'],
      [both({ maxTimeoutSeconds: 0.5 }), 'invalid_payment_requirements'],
      [
        ({ paymentPayload }) => Object.assign(paymentPayload, { payload: { permit2Authorization: {} } }),
        'invalid_payload',
      ],
    ];
    for (const [at, [change, why]] of expected.entries()) expect([at, await reason(change)]).toEqual([at, why]);
    expect(await reason(({ paymentPayload }) => Object.assign(paymentPayload, { scheme: 'upto' }), evm(1))).toBe(
      'invalid_scheme',
    );
  });

  test('a body that is no envelope is 400', async () => {
    const text = JSON.stringify(await evm(2));
    const deep = '['.repeat(20) + ']'.repeat(20);
    const wrong = [
      '',
      '[]',
      'null',
      '{',
      '{}',
      '{"paymentPayload":{}}',
      '{"paymentPayload":{},"paymentRequirements":[]}',
      text.replace('"scheme"', '"network":"a","scheme"'),
      text.replace('{', '{"__proto__":{},'),
      `${text}{}`,
      text.replace('{', `{"more":${deep},`),
      '{"paymentPayload":"e30=","paymentRequirements":{}}',
    ];
    const headers = { 'content-type': 'application/json' };
    for (const body of wrong) {
      const answer = await sendRaw(granary.url, { method: 'POST', path: '/x402/verify', headers, body });
      expect([body, answer.status]).toEqual([body, 400]);
      expect(['MALFORMED_JSON', 'VALIDATION_FAILED']).toContain(expectProblem(answer).code);
    }
    const long = { method: 'POST', path: '/x402/verify', headers, body: `{"more":"${'x'.repeat(65_536)}"}` };
    expect((await sendRaw(granary.url, long)).status).toBe(413);
  });

  test('the kinds that are settled are listed by both names of their networks', async () => {
    const kindsOf = async ({ url }: Granary) => {
      const { status, body } = await send<{ kinds: object[] }>(url, 'GET', '/x402/supported');
      expect([status, Object.keys(body)]).toEqual([200, ['kinds', 'extensions', 'signers']]);
      return body.kinds;
    };
    expect(await kindsOf(granary)).toEqual([]);
    const simulated = await borrowGranary(transport, 'simulated');
    expect(await kindsOf(simulated)).toEqual([
      { x402Version: 2, scheme: 'exact', network: simulatedNetwork },
      { x402Version: 1, scheme: 'exact', network: simulatedName },
    ]);
    await simulated.stop();
  });
});
