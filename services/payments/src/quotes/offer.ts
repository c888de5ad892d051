import type { Purchase } from '@granary/shared/gen/granary/payments/v1/Purchase';
import { divideShares } from '../settings/app-share';
import type { PaymentMethod } from '../networks/payment-method';
import type { QuoteTerms } from './quote-id';

/** How long a quote is valid. */
export const validSeconds = 300;

/** The request for which a quote is made. */
export interface QuotedRequest extends Pick<Purchase, 'appId' | 'requestHash'> {
  /** It is settled before what it pays for is done. */
  isUpfront?: boolean | undefined;
}

/** A way to pay for a request, with its quote. */
export interface Offer {
  method: PaymentMethod;
  request: QuotedRequest;
  quoteId: string;
  terms: QuoteTerms;
  /** The amount in units of the asset. */
  amount: bigint;
}

/**
 * The requirement that a payment must meet, as JSON in a version of x402. The same offer always gives the same text, so
 * that a requirement that comes back can be compared with it. `extra` is the same in both versions: a caller that
 * writes both passes the result of `extraText`.
 */
export function requirementText(version: 1 | 2, offer: Offer, extra = extraText(offer)): string {
  const { before, between } = requirementParts(offer.method)[version];
  return `${before}"${offer.amount}"${between}${extra}}`;
}

/** The member `extra` of the requirements of an offer. */
export function extraText({ method, request, quoteId, terms }: Offer): string {
  const { app, platform } = divideShares(terms.amountUtia, terms.appSharePpm);
  const total = terms.amountUtia;
  // x402 calls the flow `upfront` when a payment is settled before the work that it pays for.
  const flow = request.isUpfront ? ',"paymentFlow":"upfront"' : '';
  const memo = method.hasMemo ? `,"memo":"${quoteId}"` : '';
  return (
    `{"quoteId":"${quoteId}","app":${JSON.stringify(request.appId)},"request":"${request.requestHash.toString('base64url')}"` +
    `${flow}${requirementParts(method).extra}${memo}` +
    `,"costBreakdown":{"app":${app},"platform":${platform},"total":${total}}` +
    `,"pricing":{"baseAmount":"${total}","baseAsset":"utia","expiresAt":${terms.expiresAtSeconds}}}`
  );
}

interface RequirementParts {
  /** The members before the amount and after it, by version. */
  1: { before: string; between: string };
  2: { before: string; between: string };
  /** The members of `extra` that the method states. */
  extra: string;
}

/**
 * Requirements are written from the texts of their method: an answer 402 has several, and strangers may ask for many.
 */
const partsByMethod = new WeakMap<PaymentMethod, RequirementParts>();

function requirementParts(method: PaymentMethod): RequirementParts {
  let parts = partsByMethod.get(method);
  if (!parts) {
    const { network, version1Network, payTo, asset } = method;
    const common = JSON.stringify({ payTo, asset, maxTimeoutSeconds: validSeconds }).slice(1, -1);
    const around = (name: string | undefined, amount: string) => ({
      before: `{"scheme":"exact","network":${JSON.stringify(name ?? network)},"${amount}":`,
      between: `,${common},"extra":`,
    });
    const extra = JSON.stringify(method.extra).slice(1, -1);
    parts = {
      1: around(version1Network, 'maxAmountRequired'),
      2: around(network, 'amount'),
      extra: extra === '' ? '' : `,${extra}`,
    };
    partsByMethod.set(method, parts);
  }
  return parts;
}
