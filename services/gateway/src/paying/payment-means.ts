import type { IncomingMessage } from 'node:http';
import { invalid, ServiceError } from '@granary/shared/errors';
import { newTicket } from '@granary/shared/ids';
import { newCall } from '@granary/shared/rpc/types';
import { unauthenticated } from '../errors/problem';
import type { Answer } from '../http/answer';
import { requirePermission, type AppCaller } from '../pipeline/access';
import { isPaymentRefused } from '../spending/agent-spending';
import type { GatewayContext } from '../pipeline/gateway-context';
import { paymentIn, type CarriedPayment } from '../spending/payment-header';
import { paymentByGrant, userKeyIn } from './grant-payments';
import { paymentRequiredAnswer, repeatedRequest, type PricedRequest } from './payment-required';
import type { Price } from './price';
import { isAnswer, outcomeOf, runPaid, type PaidOperation } from './priced-write';
import { paidHeaders, paymentOf, type RequestPayment } from './x402-answers';
import { payUpfront } from './x402-writes';

/** The means by which a request is to be paid: one of them, or none. */
export interface PaymentMeans {
  agentKey?: string;
  /** The key of a grant. */
  userKey?: string;
  /** An x402 payment. */
  presented?: CarriedPayment;
}

/** Throws VALIDATION_FAILED for several, and for a payment that is not well-formed. */
export function paymentMeansIn(incoming: Pick<IncomingMessage, 'headers' | 'headersDistinct'>): PaymentMeans {
  const agentKey = incoming.headers['x-agent-key'];
  const userKey = userKeyIn(incoming.headers);
  const presented = paymentIn(incoming);
  if (agentKey !== undefined && presented) {
    throw invalid('A request is paid for once', { 'X-Agent-Key': ['cannot stand beside a payment'] });
  }
  return {
    ...(typeof agentKey === 'string' && { agentKey }),
    ...(userKey !== undefined && { userKey }),
    ...(presented && { presented }),
  };
}

/**
 * The payment that a request carries, or that by its grant; undefined where there is neither, or grants are not taken.
 */
export async function requestPaymentFrom(
  gateway: GatewayContext,
  priced: PricedRequest,
  price: Price,
  { userKey, presented }: PaymentMeans,
): Promise<RequestPayment | undefined> {
  if (userKey !== undefined) return paymentByGrant(gateway, priced, price, userKey);
  return presented && paymentOf(priced.request, presented);
}

/** The caller with an agent key that may pay. Throws UNAUTHENTICATED and FORBIDDEN. */
export async function requirePayingAgent(
  gateway: GatewayContext,
  { incoming, call }: PricedRequest['request'],
  agentKey: string,
): Promise<AppCaller> {
  const agent = await gateway.keys.find(agentKey, call, gateway.addressOf(incoming));
  if (!agent) throw unauthenticated('The agent key is not valid');
  requirePermission(agent, 'Pay');
  return agent;
}

/**
 * Does what costs something once that is paid, or answers 402. Throws what it throws, UNAUTHENTICATED and FORBIDDEN.
 */
export async function payAndRun(
  gateway: GatewayContext,
  priced: PricedRequest<AppCaller>,
  price: Price,
  means: PaymentMeans,
  operation: PaidOperation,
): Promise<Answer> {
  const payment = await requestPaymentFrom(gateway, priced, price, means);
  if (payment) return payUpfront(gateway, priced, price, payment, operation);
  if (means.agentKey === undefined) return paymentRequiredAnswer(gateway, priced, price);
  const { request, appId } = priced;
  const agent = await requirePayingAgent(gateway, request, means.agentKey);
  // An agent key pays its own application nothing. It does pay for an index, whose price goes to the platform alone.
  if (agent.appId === appId && priced.kind !== 'index') return runPaid(operation.run, { call: request.call });
  return payByKey(gateway, priced, agent, price, operation);
}

/** The time that an upload may take beside its body, which has a time limit of its own. */
const restOfUploadMs = 60_000;

/**
 * The amount is held first, and moves once the operation is done. What changed nothing costs nothing. Where the outcome
 * is not known, payments finds it out by the ticket of the operation: it moves what is held, or sees to it that the
 * operation is not done later.
 */
async function payByKey(
  gateway: GatewayContext,
  priced: PricedRequest<AppCaller>,
  agent: AppCaller,
  price: Price,
  { run, isStreamed, wasDone = () => false }: PaidOperation,
): Promise<Answer> {
  const { call } = priced.request;
  const { REQUEST_TIMEOUT_MS: timeoutMs, UPLOAD_TIMEOUT_MS: uploadMs } = gateway.config;
  const ticketId = newTicket(priced.kind === 'index' ? 'j' : 'c', BigInt(priced.request.caller.appNumber));
  try {
    const held = await gateway.agentSpending.hold({
      agent,
      targetAppId: priced.appId,
      amountUtia: price.amountUtia,
      requestId: call.requestId,
      appSharePpm: price.appSharePpm,
      // The write, and then the payment.
      lastsMs: (isStreamed ? uploadMs + restOfUploadMs : timeoutMs) + timeoutMs,
      ticketId,
      repeats: repeatedRequest(priced, agent),
    });
    // The operation that was paid for is already done: `run` returns its kept answer.
    if (held.paidBefore) {
      const outcome = await outcomeOf(run({ isPaid: false, call }));
      return isAnswer(outcome) ? outcome : await paymentRequiredAnswer(gateway, priced, price);
    }
    try {
      // This call goes on when the client disconnects; otherwise a write might be done and not paid.
      const detachedCall = newCall(call.requestId, timeoutMs);
      const answer = await runPaid(run, { heldTicket: ticketId, call: detachedCall });
      if (isReplayed(answer) || wasDone(answer)) await held.cancel();
      else await held.complete();
      return { ...answer, headers: { ...answer.headers, ...paidHeaders } };
    } catch (error) {
      if (isRefusal(error)) await held.cancel();
      else held.resolve();
      throw error;
    }
  } catch (error) {
    if (!isPaymentRefused(error)) throw error;
    return paymentRequiredAnswer(gateway, priced, price, error);
  }
}

/**
 * Errors that are raised before an operation has any effect. Any other may come after the effect, or from a repetition
 * of a call that had it.
 */
const refusals: ReadonlySet<string> = new Set(['INVALID_ARGUMENT', 'FAILED_PRECONDITION', 'ALREADY_EXISTS']);
const isRefusal = (error: unknown): boolean => error instanceof ServiceError && refusals.has(error.code);

const isReplayed = ({ headers }: Answer): boolean => headers['Idempotency-Replayed'] === 'true';
