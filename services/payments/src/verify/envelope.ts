import { invalid } from '@granary/shared/errors';
import { fromJsonError, jsonErrorPath, translateJsonErrors } from '@granary/shared/json/service-error';
import { JsonNumber, readJson, type JsonObject, type JsonValue } from '@granary/shared/json/value';
import { Members, sameValue } from './members';
import { caip2Of } from './version1-names';
import { Refusal } from './refusal';

const depthMax = 16;
/** No requirement may be open for longer than a day. */
const timeoutSecondsMax = 86_400;

/** The terms that a payment must meet. */
export interface Requirement {
  /** CAIP-2. */
  network: string;
  amount: bigint;
  asset: string;
  payTo: string;
  maxTimeoutSeconds: number;
  extra: Members;
}

/** A payment by the scheme `exact`, and what it must meet. */
export interface ExactPayment {
  version: 1 | 2;
  requirement: Requirement;
  payload: Members;
}

export interface Envelope {
  payment: JsonObject;
  requirement: JsonObject;
  /** The version of x402 that the envelope itself states, if it does. */
  version?: JsonValue;
}

/** The body of a request to verify. Throws MALFORMED_JSON and VALIDATION_FAILED for one that is not well-formed. */
export function readEnvelope(body: Buffer): Envelope {
  const text = 'The body';
  const value = translateJsonErrors(
    () => readJson(body, { maxDepth: depthMax }),
    (error) => fromJsonError(error, `${text} is not valid`, jsonErrorPath('', error).replace(/^\./, '') || 'body'),
  );
  if (!(value instanceof Map)) throw invalid(`${text} must be an object`, { body: ['must be an object'] });
  const child = (name: string): JsonObject => {
    const member = value.get(name);
    if (!(member instanceof Map)) throw invalid(`${text} is not valid`, { [name]: ['must be an object'] });
    return member;
  };
  const version = value.get('x402Version');
  const [payment, requirement] = [child('paymentPayload'), child('paymentRequirements')];
  return { payment, requirement, ...(version != null && { version }) };
}

/** The payment in an envelope, once all is checked that does not depend on the network. Throws a Refusal. */
export function readExactPayment({ payment, requirement, version: stated }: Envelope): ExactPayment {
  const version = versionOf(payment.get('x402Version'));
  if (stated !== undefined && versionOf(stated) !== version) {
    throw new Refusal('invalid_x402_version', 'x402Version and paymentPayload.x402Version must be the same');
  }
  const required = new Members(requirement, 'paymentRequirements', 'invalid_payment_requirements');
  const paid = new Members(payment, 'paymentPayload', 'invalid_payload');
  const chosen = version === 1 ? paid : paid.child('accepted');
  if (required.text('scheme') !== 'exact') throw new Refusal('unsupported_scheme', 'Only the scheme exact is verified');
  if (chosen.text('scheme') !== 'exact') throw new Refusal('invalid_scheme', 'The payment is of another scheme');
  const name = required.text('network');
  if (chosen.text('network') !== name) throw new Refusal('invalid_network', 'The payment is for another network');
  const network = caip2Of(version, name);
  if (network === undefined) throw new Refusal('invalid_network', 'The network is unknown');
  const amount = required.amount(version === 1 ? 'maxAmountRequired' : 'amount');
  if (amount === 0n) required.refuse(version === 1 ? 'maxAmountRequired' : 'amount', 'must be positive');
  if (version === 2 && !sameValue(payment.get('accepted'), requirement)) {
    throw new Refusal('invalid_payment_requirements', 'paymentPayload.accepted must equal paymentRequirements');
  }
  return {
    version,
    requirement: {
      network,
      amount,
      asset: required.text('asset'),
      payTo: required.text('payTo'),
      maxTimeoutSeconds: required.count('maxTimeoutSeconds', timeoutSecondsMax),
      extra: required.optionalObject('extra'),
    },
    payload: paid.child('payload'),
  };
}

function versionOf(value: JsonValue | undefined): 1 | 2 {
  const text = value instanceof JsonNumber ? value.text : undefined;
  if (text === '1') return 1;
  if (text === '2') return 2;
  throw new Refusal('invalid_x402_version', 'x402Version must be the number 1 or 2');
}
