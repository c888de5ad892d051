import { ServiceError } from '@granary/shared/errors';
import type { SettledPayment } from '@granary/shared/gen/granary/payments/v1/SettledPayment';
import { overloaded } from '../errors/problem';
import { accepted, type Answer } from '../http/answer';
import { isPaymentRefused } from '../spending/agent-spending';
import type { CarriedPayment, PaymentForm } from '../spending/payment-header';
import type { GatewayContext } from '../pipeline/gateway-context';
import { idempotencyKey } from '../pipeline/idempotency';
import type { RouteRequest } from '../pipeline/route';

/** No cache may give to others what one has paid for. */
export const paidHeaders = { 'Cache-Control': 'no-store' };

/** A payment, and what its request is repeated by. */
export interface RequestPayment extends CarriedPayment {
  /** The Idempotency-Key, empty where there is none. */
  identifier: string;
  /** The request had no Idempotency-Key, but needs one to be repeated. */
  isKeyGenerated: boolean;
}

export const paymentOf = (request: Pick<RouteRequest, 'incoming'>, carried: CarriedPayment): RequestPayment => ({
  ...carried,
  identifier: idempotencyKey(request),
  isKeyGenerated: false,
});

/** The header by which an answer names the payment that paid for it. */
export function responseHeader({ version, isPlain }: PaymentForm, payment: SettledPayment): Record<string, string> {
  const { network, transaction, payer, amount, blockHeight, confirmedAt } = payment;
  const settled = { success: true, transaction, network, payer, amount };
  if (version === 2) return { 'PAYMENT-RESPONSE': base64(settled) };
  const answer = { ...settled, txHash: transaction, blockHeight: Number(blockHeight), confirmedAt };
  return { 'X-PAYMENT-RESPONSE': isPlain ? JSON.stringify(answer) : base64(answer) };
}

export function failureHeader({ version, network }: PaymentForm, { details }: ServiceError): Record<string, string> {
  if (version === 1) return {};
  const failure = { success: false, errorReason: details['reason'], transaction: '', network };
  return { 'PAYMENT-RESPONSE': base64(failure) };
}

/**
 * Waits for the block of a payment, which takes seconds: meanwhile the request takes no place of others. Throws
 * OVERLOADED.
 */
export async function waitForBlock<T>(
  { paymentWaits }: GatewayContext,
  request: Pick<RouteRequest, 'leavePlace'>,
  settle: () => Promise<T>,
): Promise<T> {
  if (!paymentWaits.tryAcquire()) throw overloaded();
  try {
    request.leavePlace();
    return await settle();
  } finally {
    paymentWaits.release();
  }
}

/** How a task is named whose payment no block has yet, and by what its request is repeated. */
const pendingTask = (ticketId: string, { isKeyGenerated, identifier }: RequestPayment) => ({
  by: isKeyGenerated ? 'this Idempotency-Key' : 'the same payment',
  details: {
    ticket_id: ticketId,
    status: 'PaymentConfirming',
    ...(isKeyGenerated && { idempotency_key: identifier }),
  },
});

/**
 * Refuses a read for now whose payment no block has yet: clients would take a success without the page for what they
 * have paid for.
 */
export function pendingRead(ticketId: string, payment: RequestPayment): ServiceError {
  const { by, details } = pendingTask(ticketId, payment);
  const message = `No block has the payment yet: the same request with ${by} is answered once one has it`;
  return new ServiceError('UNAVAILABLE', 'PAYMENT_PENDING', message, { details });
}

/**
 * 202 with the ticket of a payment that is not settled yet. `then`: what happens once it is, beside an answer to the
 * same request.
 */
export function pendingAnswer(ticketId: string, payment: RequestPayment, then?: string): Answer {
  const { by, details } = pendingTask(ticketId, payment);
  const promised = then === undefined ? '' : `${then}; `;
  const message = `The payment is being settled: ${promised}once it is, the same request with ${by} is answered`;
  const body = { ...details, message };
  return accepted(ticketId, body, { ...paidHeaders, 'Retry-After': '1' });
}

/**
 * Awaits `settling`. Where it rejects, the request may be paid all the same: if the Idempotency-Key was generated, the
 * error names it, and the same request with that key goes on and is not paid again.
 */
export async function settled<T>({ isKeyGenerated, identifier }: RequestPayment, settling: Promise<T>): Promise<T> {
  try {
    return await settling;
  } catch (error) {
    if (isPaymentRefused(error) || !isKeyGenerated || !(error instanceof ServiceError)) throw error;
    const { code, reason, message, isLogged } = error;
    const details = { ...error.details, idempotency_key: identifier };
    throw new ServiceError(code, reason, message, { details, isLogged, cause: error });
  }
}

const base64 = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64');
