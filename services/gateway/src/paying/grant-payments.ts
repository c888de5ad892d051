import { createHash, randomUUID } from 'node:crypto';
import { invalid } from '@granary/shared/errors';
import type { IncomingHttpHeaders } from 'node:http';
import type { GatewayContext } from '../pipeline/gateway-context';
import { idempotencyKey } from '../pipeline/idempotency';
import { offerRequest, type PricedRequest } from './payment-required';
import type { Price } from './price';
import type { RequestPayment } from './x402-answers';

/** The key of a grant that pays for a request. Throws VALIDATION_FAILED where something else is to pay, too. */
export function userKeyIn(headers: IncomingHttpHeaders): string | undefined {
  const key = headers['x-user-key'];
  if (key === undefined) return undefined;
  for (const other of ['x-agent-key', 'x-payment', 'payment-signature']) {
    if (headers[other] !== undefined) {
      throw invalid('A request is paid for once', { 'X-User-Key': [`cannot stand beside ${other}`] });
    }
  }
  return String(key);
}

interface Requirement {
  network: string;
  extra: { quoteId: string; chainType?: string };
}

/**
 * The payment by a grant, as an x402 payment on the chain of the wallets is written; undefined where none is taken
 * there. The same request with the same Idempotency-Key asks for the same deduction, so one without gets a key of its
 * own: without it, a deduction that takes longer than the request would pay for nothing.
 */
export async function paymentByGrant(
  gateway: GatewayContext,
  priced: PricedRequest,
  price: Price,
  userKey: string,
): Promise<RequestPayment | undefined> {
  const { request, kind } = priced;
  const offerReadRequest = await offerRequest(gateway, priced, price);
  const offer = await gateway.clients.payments.offerRead({ ...offerReadRequest, isForGrant: true }, request.call);
  const accepts = JSON.parse(offer.acceptsJson) as Requirement[];
  const requirement = accepts.find(({ extra }) => extra.chainType === 'cosmos');
  if (!requirement) return undefined;
  const { requestHash } = offerReadRequest.purchase!;
  const givenKey = idempotencyKey(request);
  const identifier = givenKey === '' ? randomUUID() : givenKey;
  const payload = {
    userKey,
    deductionId: deductionId(userKey, identifier, requestHash),
    operation: kind,
    collection: collectionOf(priced),
  };
  const { network, extra } = requirement;
  const payment = { x402Version: 1, scheme: 'exact', network, quoteId: extra.quoteId, payload };
  const paymentJson = Buffer.from(JSON.stringify(payment));
  const form = { version: 1, isPlain: true, network } as const;
  return { paymentJson, form, identifier, isKeyGenerated: givenKey === '' };
}

function deductionId(userKey: string, key: string, requestHash: Buffer): string {
  const hex = createHash('sha256')
    .update(JSON.stringify([userKey, key]))
    .update(requestHash)
    .digest('hex');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12}).*$/, '$1-$2-$3-$4-$5');
}

/** The collection, view or query that a path names; empty where it names none. */
function collectionOf({ request }: PricedRequest): string {
  const path = request.path as Partial<Record<string, string>>;
  return path['collection'] ?? path['view_name'] ?? path['query_name'] ?? '';
}
