import { hash } from 'node:crypto';
import { endOfTurn } from '../http/event-loop-turn';
import type { ServiceError } from '@granary/shared/errors';
import type { PageResponse } from '@granary/shared/gen/granary/data/v1/PageResponse';
import type { OfferReadRequest } from '@granary/shared/gen/granary/payments/v1/OfferReadRequest';
import type { RepeatedRequest } from '@granary/shared/gen/granary/payments/v1/RepeatedRequest';
import type { Purchase } from '@granary/shared/gen/granary/payments/v1/Purchase';
import { toText } from '@granary/shared/json/value';
import { message } from '@granary/shared/rpc/types';
import { configuredUrl } from '../http/address';
import { jsonBytes, type Answer } from '../http/answer';
import type { AnyReader, AppCaller, Caller } from '../pipeline/access';
import type { GatewayContext } from '../pipeline/gateway-context';
import { callerName, idempotencyKey } from '../pipeline/idempotency';
import { hasPayment } from '../spending/payment-header';
import { requestContextOf } from '../pipeline/request-context';
import { canonicalPathOf, type RouteRequest } from '../pipeline/route';
import { priceDetails, priceSentence, type Price, type PricedKind } from './price';

export type ReadByUrl = RouteRequest<'app_id', AnyReader, ReadonlyMap<string, string>>;

/** Reads a page for what was paid; where it costs more, the answer has the price and no page. */
export type ReadForPrice = (paidUtia: string) => Promise<PageResponse>;

/** A request that costs something. */
export interface PricedRequest<C extends Caller = Caller> {
  request: RouteRequest<string, C>;
  /** The application that is paid. */
  appId: string;
  kind: PricedKind;
  /** The hash that quotes are bound to, where it is not that of the request as it was sent. */
  requestHash?: Buffer;
}

export const readOf = (request: ReadByUrl): PricedRequest => ({ request, appId: request.path.app_id, kind: 'read' });

/** The purchase of a request: the request in its one spelling, its price, and the networks on which it may be paid. */
export async function purchaseOf(
  { paymentNetworks }: Pick<GatewayContext, 'paymentNetworks'>,
  { request, appId, kind, requestHash = requestHashOf(request) }: PricedRequest,
  price: Price,
): Promise<Purchase> {
  const names = await paymentNetworks.forApp(appId, request.call);
  return message<Purchase>({
    appId,
    requestHash,
    amountUtia: price.amountUtia,
    appSharePpm: price.appSharePpm,
    isUpfront: kind !== 'read',
    networks: names.length === 0 ? undefined : { names: [...names] },
  });
}

/** The hashes that identify a repeatable request paid by an agent key; undefined without an Idempotency-Key. */
export function repeatedRequest(
  { request, appId, requestHash = requestHashOf(request) }: PricedRequest,
  agent: AppCaller,
): RepeatedRequest | undefined {
  const key = idempotencyKey(request);
  if (key === '') return undefined;
  const { caller } = request;
  const sender = caller.kind === 'app' ? callerName(caller) : caller.kind;
  const identifier = hash('sha256', JSON.stringify([callerName(agent), sender, appId, key]), 'buffer');
  return { identifier, requestHash };
}

function requestHashOf(request: RouteRequest<string, Caller>): Buffer {
  const { incoming, routePath } = request;
  const method = incoming.method === 'HEAD' ? 'GET' : incoming.method;
  const queryAt = incoming.originalUrl.indexOf('?');
  const query = new URLSearchParams(queryAt < 0 ? '' : incoming.originalUrl.slice(queryAt));
  query.sort();
  // JSON keeps the parts apart, whatever they contain.
  const parts = [`${method} ${routePath}`, canonicalPathOf(request), query.toString(), bodyHashOf(request)];
  return hash('sha256', JSON.stringify(parts), 'buffer');
}

function bodyHashOf({ body, jsonTree, incoming }: RouteRequest<string, Caller>): string {
  if (Buffer.isBuffer(body)) return hash('sha256', body);
  if (jsonTree !== null) return hash('sha256', toText(jsonTree));
  if (incoming.method !== 'POST') return '';
  // An upload is paid before its body is read. The boundary of a form is another one when it is sent again.
  const { 'content-type': type = '', 'content-length': length, 'x-blob-metadata': metadata } = incoming.headers;
  return JSON.stringify([type.split(';')[0], length, metadata]);
}

/**
 * 402 with the price and how it may be paid, also to a payment that was refused. Clients of x402 compare `error` with
 * reasons, so to a payment it is the reason, and the sentence is in `details.message`; else it is the sentence.
 */
export async function paymentRequiredAnswer(
  gateway: GatewayContext,
  priced: PricedRequest,
  price: Price,
  refusal?: ServiceError,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const { request } = priced;
  const { payments } = gateway.clients;
  const reason = refusal?.details['reason'];
  const hasReason = typeof reason === 'string' && hasPayment(request.incoming);
  const offerReadRequest = await offerRequest(gateway, priced, price);
  const offer = await payments.offerRead(
    hasReason ? { ...offerReadRequest, error: reason } : offerReadRequest,
    request.call,
  );
  const networks = offerReadRequest.purchase!.networks?.names ?? [];
  const isOffered = networks.length === 0 || offer.header !== undefined;
  const whyNone = offer.tooLittle ?? (isOffered ? undefined : notOffered(networks));
  const code = refusal ? 'PAYMENT_REFUSED' : 'PAYMENT_REQUIRED';
  requestContextOf(request.outgoing).code = code;
  const stated = refusal?.message ?? priceSentence(priced.kind, price);
  const sentence = [stated, ...(whyNone === undefined ? [] : [whyNone])].join('. ');
  const allDetails = {
    ...priceDetails(price),
    ...(!isOffered && { payment_networks: networks }),
    ...(refusal && { reason }),
    ...(hasReason && { message: sentence }),
  };
  // Written by hand: strangers may ask for many of these.
  const text =
    `{"x402Version":1,"error":${JSON.stringify(hasReason ? reason : sentence)},"accepts":${offer.acceptsJson}` +
    `,"code":"${code}","details":${JSON.stringify(allDetails)}}`;
  const answer = jsonBytes(402, Buffer.from(text), {
    'Cache-Control': 'no-store',
    ...(offer.header !== undefined && { 'PAYMENT-REQUIRED': offer.header }),
    ...headers,
  });
  await endOfTurn();
  return answer;
}

/** The sentence for an application none of whose chosen networks is offered now. */
const notOffered = (networks: readonly string[]): string =>
  `None of the networks on which the application takes x402 payments is offered at the moment: ${networks.join(', ')}`;

/** The path and query of a request, also of one whose target is a whole URL, as proxies send it. */
const targetOf = ({ originalUrl }: Pick<RouteRequest<string, Caller>['incoming'], 'originalUrl'>): string =>
  originalUrl.replace(/^[a-z]+:\/\/[^/?]*/i, '');

const descriptions = { read: 'A read of', write: 'A write to', index: 'An encrypted index by' };

export const offerRequest = async (
  gateway: Pick<GatewayContext, 'config' | 'paymentNetworks'>,
  priced: PricedRequest,
  price: Price,
): Promise<OfferReadRequest> => ({
  purchase: await purchaseOf(gateway, priced, price),
  // A requirement is shown to payers by others, so it names no host that a request made up. Clients want a whole URL.
  resource: configuredUrl(priced.request.incoming, gateway.config) + targetOf(priced.request.incoming),
  description: `${descriptions[priced.kind]} ${canonicalPathOf(priced.request)}`,
  error: priceSentence(priced.kind, price),
});
