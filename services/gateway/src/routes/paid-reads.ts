import { createHash } from 'node:crypto';
import { invalid, ServiceError } from '@granary/shared/errors';
import type { PageResponse } from '@granary/shared/gen/granary/data/v1/PageResponse';
import type { OfferReadRequest } from '@granary/shared/gen/granary/payments/v1/OfferReadRequest';
import { maxUtia } from '@granary/shared/money';
import { message } from '@granary/shared/rpc/types';
import { unauthenticated } from '../errors/problem';
import { clientUrl } from '../http/address';
import { clientDisconnected } from '../http/body';
import { json, jsonBytes, JsonText, type Answer } from '../http/answer';
import { requirePermission, type AnyReader, type AppCaller } from '../pipeline/access';
import { isPaymentRefused, type ReservedSpend, type Spend } from '../pipeline/agent-spending';
import type { GatewayContext } from '../pipeline/gateway-context';
import { paymentIn } from '../pipeline/payment-header';
import { requestContextOf } from '../pipeline/request-context';
import { canonicalPathOf, type RouteRequest } from '../pipeline/route';

type ReadByUrl = RouteRequest<'app_id', AnyReader, ReadonlyMap<string, string>>;

/** What a read costs, as the data service refuses it. */
export type PaymentRequired = ServiceError & { reason: 'PAYMENT_REQUIRED' };

export const isPaymentRequired = (error: unknown): error is PaymentRequired =>
  error instanceof ServiceError && error.reason === 'PAYMENT_REQUIRED';

/** How often a price that has grown since it was reserved is reserved again. */
const attemptsMax = 2;

/**
 * Answers a read that costs something: with the page if an agent key pays for it, else with 402. `read` reads the page for
 * what was paid. Throws UNAUTHENTICATED and FORBIDDEN for the agent key, VALIDATION_FAILED for payments that contradict.
 */
export async function payForRead(
  gateway: GatewayContext,
  request: ReadByUrl,
  required: PaymentRequired,
  read: (paidUtia: string) => Promise<PageResponse>,
): Promise<Answer> {
  const { incoming, path, call } = request;
  const agentKey = incoming.headers['x-agent-key'];
  const payment = paymentIn(incoming);
  if (agentKey !== undefined && payment) {
    throw invalid('A read is paid for once', { 'X-Agent-Key': ['cannot stand beside a payment'] });
  }
  // What has no body is not worth its price: HEAD only shows it.
  if (typeof agentKey !== 'string' || incoming.method === 'HEAD') {
    return paymentAnswer(gateway, request, required, payment);
  }
  const agent = await gateway.keys.find(agentKey, call, gateway.addressOf(incoming));
  if (!agent) throw unauthenticated('The agent key is not valid');
  requirePermission(agent, 'Pay');
  if (agent.appId === path.app_id) return paidPage(await read(maxUtia.toString()));
  return payByKey(gateway, request, agent, required, read);
}

async function payByKey(
  gateway: GatewayContext,
  request: ReadByUrl,
  agent: AppCaller,
  required: PaymentRequired,
  read: (paidUtia: string) => Promise<PageResponse>,
): Promise<Answer> {
  let price = required;
  for (let attempt = 1; ; attempt += 1) {
    let reserved: ReservedSpend | undefined;
    try {
      reserved = await gateway.agentSpending.reserve(spendOf(agent, request, price));
      const page = await read(amountOf(price));
      if (request.outgoing.destroyed) throw clientDisconnected();
      await reserved.complete();
      return paidPage(page);
    } catch (error) {
      await reserved?.cancel();
      if (isPaymentRefused(error)) return paymentAnswer(gateway, request, price, undefined, error);
      if (!isPaymentRequired(error)) throw error;
      if (attempt === attemptsMax) return paymentAnswer(gateway, request, error, undefined);
      price = error;
    }
  }
}

const amountOf = ({ details }: PaymentRequired): string => String(details['amount_utia']);

const shareOf = ({ details }: PaymentRequired): number | undefined =>
  typeof details['app_share_ppm'] === 'number' ? details['app_share_ppm'] : undefined;

const spendOf = (agent: AppCaller, { path, call }: ReadByUrl, price: PaymentRequired): Spend => ({
  ...{ agent, targetAppId: path.app_id, amountUtia: amountOf(price), requestId: call.requestId },
  appSharePpm: shareOf(price),
});

/** No cache may give to others what one has paid for. */
const paidPage = ({ json: page }: PageResponse): Answer => jsonBytes(200, page, { 'Cache-Control': 'no-store' });

/** 402 with the price and how it may be paid, to a payment that was refused with the reason. */
async function paymentAnswer(
  gateway: GatewayContext,
  request: ReadByUrl,
  price: PaymentRequired,
  payment: Buffer | undefined,
  refusal?: ServiceError,
): Promise<Answer> {
  const { payments } = gateway.clients;
  const offer = await payments.offerRead(offerRequest(gateway, request, price, payment), request.call);
  const { app_share_ppm: _, ...details } = price.details;
  const reason = refusal?.details['reason'] ?? offer.refusedBecause;
  const code = reason === undefined ? 'PAYMENT_REQUIRED' : 'PAYMENT_REFUSED';
  requestContextOf(request.outgoing).code = code;
  const body = {
    x402Version: 1,
    error: refusal?.message ?? (reason === undefined ? price.message : (refusals[reason as string] ?? price.message)),
    accepts: new JsonText(offer.acceptsJson),
    code,
    details: { ...details, ...(reason !== undefined && { reason }) },
  };
  return json(402, body, {
    'Cache-Control': 'no-store',
    ...(offer.header !== undefined && { 'PAYMENT-REQUIRED': offer.header }),
  });
}

const refusals: Readonly<Record<string, string>> = {
  quote_invalid: 'The payment is for a quote that this service has not made for this request',
  quote_expired: 'The quote of the payment has expired',
  quote_insufficient: 'The quote of the payment is for less than the read costs now',
  settlement_unavailable: 'This service does not settle x402 payments yet: an agent key can pay, in X-Agent-Key',
};

function offerRequest(
  { config }: GatewayContext,
  request: ReadByUrl,
  price: PaymentRequired,
  payment: Buffer | undefined,
): OfferReadRequest {
  const { incoming, path, query, body, routePath } = request;
  return message<OfferReadRequest>({
    appId: path.app_id,
    operation: `${incoming.method === 'HEAD' ? 'GET' : incoming.method} ${routePath}`,
    path: canonicalPathOf(request),
    query: new URLSearchParams([...query].sort(([one], [other]) => (one < other ? -1 : 1))).toString(),
    bodyHash: Buffer.isBuffer(body) ? createHash('sha256').update(body).digest() : Buffer.alloc(0),
    amountUtia: amountOf(price),
    appSharePpm: shareOf(price),
    resource: clientUrl(incoming, config) + incoming.originalUrl,
    description: `A read of ${canonicalPathOf(request)}`,
    error: price.message,
    paymentJson: payment,
  });
}
