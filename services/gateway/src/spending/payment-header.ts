import type { IncomingMessage } from 'node:http';
import { invalid } from '@granary/shared/errors';
import { JsonError } from '@granary/shared/json/error';
import { JsonNumber, readJson, type JsonObject, type JsonValue } from '@granary/shared/json/value';

const headerLengthMax = 8_192;
const depthMax = 16;
const names = ['X-PAYMENT', 'PAYMENT-SIGNATURE'] as const;
// Standard base64, as the official clients encode it.
const base64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** Whether a request carries a payment, of either version. */
export const hasPayment = ({ headers }: Pick<IncomingMessage, 'headers'>): boolean =>
  headers['x-payment'] !== undefined || headers['payment-signature'] !== undefined;

/** The form of a payment, which tells which client has made it, and so how that client reads the answer. */
export interface PaymentForm {
  version: 1 | 2;
  /** The published client names the quote at the top, and reads JSON; others read base64 of it. */
  isPlain: boolean;
  /** The network as the payment names it; empty where it names none. */
  network: string;
}

/** A payment that a request carries. */
export interface CarriedPayment {
  /** Its JSON text. */
  paymentJson: Buffer;
  form: PaymentForm;
}

/**
 * The payment that a request carries, in X-PAYMENT (version 1) or PAYMENT-SIGNATURE (version 2); undefined
 * where it carries none. Throws VALIDATION_FAILED for several, and for what is not base64 of a JSON object.
 */
export function paymentIn(incoming: Pick<IncomingMessage, 'headers' | 'headersDistinct'>): CarriedPayment | undefined {
  if (!hasPayment(incoming)) return undefined;
  const { headersDistinct } = incoming;
  const paymentHeaders = names.flatMap((name) =>
    (headersDistinct[name.toLowerCase()] ?? []).map((text) => ({ name, text })),
  );
  const [first] = paymentHeaders;
  if (!first) return undefined;
  const { name, text } = first;
  const refuse = (message: string) => invalid('The payment is not valid', { [name]: [message] });
  if (paymentHeaders.length > 1) throw refuse('must be the only payment');
  if (text.length > headerLengthMax) throw refuse(`must have at most ${headerLengthMax} characters`);
  if (!base64.test(text)) throw refuse('must be base64');
  const paymentJson = Buffer.from(text, 'base64');
  let value: JsonValue;
  try {
    value = readJson(paymentJson, { maxDepth: depthMax });
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw refuse(`must be base64 of JSON: ${error.message}`);
  }
  if (!(value instanceof Map)) throw refuse('must be base64 of a JSON object');
  const version = name === 'X-PAYMENT' ? 1 : 2;
  const stated = value.get('x402Version');
  if (!(stated instanceof JsonNumber) || stated.text !== String(version)) {
    throw refuse(`must have the x402Version ${version}`);
  }
  return { paymentJson, form: formOf(value, version) };
}

function formOf(payment: JsonObject, version: 1 | 2): PaymentForm {
  const chosen = version === 2 ? payment.get('accepted') : payment;
  const network = chosen instanceof Map ? chosen.get('network') : undefined;
  const isPlain = typeof payment.get('quoteId') === 'string';
  return { version, isPlain, network: typeof network === 'string' ? network : '' };
}
