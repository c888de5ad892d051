import type { OfferReadRequest } from '@granary/shared/gen/granary/payments/v1/OfferReadRequest';
import type { PaymentOffer } from '@granary/shared/gen/granary/payments/v1/PaymentOffer';
import { message } from '@granary/shared/rpc/types';
import { parseUtia } from '@granary/shared/money';
import { appShareOf, divideShares } from '../app-share';
import type { PaymentAddress } from '../payment-addresses';
import { makeQuoteId, readQuoteId, type QuoteBinding, type QuoteTerms } from './quote-id';

export interface OfferSettings {
  key: Buffer;
  /** In the order in which they are offered. */
  addresses: readonly PaymentAddress[];
  APP_SHARE_PERCENT: number;
  now: () => Date;
}

/** How long a quote is valid. */
const validSeconds = 300;
const asset = 'utia';
const tokenDecimals = 6;
/** Clients refuse answers with more headers than 16 KiB. */
const headerLengthMax = 8_000;

/** How a read may be paid for; a payment that the request carries is refused with the reason. Stores nothing. */
export function offerRead(settings: OfferSettings, request: OfferReadRequest): PaymentOffer {
  const { key, addresses, now } = settings;
  const nowSeconds = Math.floor(now().getTime() / 1_000);
  const terms = { expiresAtSeconds: nowSeconds + validSeconds, amountUtia: parseUtia(request.amountUtia) };
  const offers = addresses.map((to) => ({ to, quoteId: makeQuoteId(key, bindingOf(request, to), terms) }));
  const extras = offers.map(({ quoteId }) => extraOf(settings, request, quoteId, terms));
  const accepts = offers.map(({ to }, at) => ({
    ...{ scheme: 'exact', network: to.network, maxAmountRequired: request.amountUtia, payTo: to.address, asset },
    ...{ resource: request.resource, description: request.description, mimeType: 'application/json' },
    maxTimeoutSeconds: validSeconds,
    extra: extras[at],
  }));
  return message<PaymentOffer>({
    acceptsJson: JSON.stringify(accepts),
    header: offers.length === 0 ? undefined : headerOf(request, addresses, extras),
    refusedBecause:
      request.paymentJson === undefined ? undefined : refusalOf(settings, request, terms.amountUtia, nowSeconds),
  });
}

const bindingOf = (request: OfferReadRequest, { network, address }: PaymentAddress): QuoteBinding => ({
  ...{ appId: request.appId, operation: request.operation, path: request.path, query: request.query },
  ...{ bodyHash: request.bodyHash, network, asset, payTo: address, rateRevision: 0 },
});

type Extra = ReturnType<typeof extraOf>;

function extraOf(settings: OfferSettings, request: OfferReadRequest, quoteId: string, terms: QuoteTerms) {
  const { app, platform } = divideShares(terms.amountUtia, appShareOf(settings, request.appSharePpm));
  return {
    ...{ quoteId, chainType: 'cosmos', paymentMethod: 'native', tokenSymbol: 'TIA', tokenDecimals },
    costBreakdown: { app: Number(app), platform: Number(platform), total: Number(terms.amountUtia) },
    pricing: { baseAmount: request.amountUtia, baseAsset: asset, expiresAt: terms.expiresAtSeconds },
  };
}

/** The header of version 2, in which a long URL is left without its query string. */
function headerOf(
  request: OfferReadRequest,
  addresses: readonly PaymentAddress[],
  extras: readonly Extra[],
): string | undefined {
  const accepts = addresses.map(({ network, address: payTo }, at) => ({
    ...{ scheme: 'exact', network, amount: request.amountUtia, asset, payTo, maxTimeoutSeconds: validSeconds },
    extra: extras[at],
  }));
  const { resource, description, error } = request;
  for (const url of [resource, resource.split('?')[0]!]) {
    const about = { url, description, mimeType: 'application/json' };
    const text = JSON.stringify({ x402Version: 2, error, resource: about, accepts });
    const header = Buffer.from(text).toString('base64');
    if (header.length <= headerLengthMax) return header;
  }
  return undefined;
}

/** Why a payment is refused: what is wrong with its quote, else that no payment is settled yet. */
function refusalOf(
  { key, addresses }: OfferSettings,
  request: OfferReadRequest,
  amountUtia: bigint,
  nowSeconds: number,
): string {
  const id = quoteIdIn(JSON.parse(request.paymentJson!.toString()) as PaymentWithQuote);
  if (id === undefined) return 'settlement_unavailable';
  for (const to of addresses) {
    const terms = readQuoteId(key, bindingOf(request, to), id);
    if (!terms) continue;
    if (terms.expiresAtSeconds <= nowSeconds) return 'quote_expired';
    return terms.amountUtia < amountUtia ? 'quote_insufficient' : 'settlement_unavailable';
  }
  return 'quote_invalid';
}

interface PaymentWithQuote {
  quoteId?: unknown;
  accepted?: { extra?: { quoteId?: unknown } | null } | null;
}

/** Where version 1 and version 2 carry the id of the quote, if they do. */
function quoteIdIn({ quoteId, accepted }: PaymentWithQuote): string | undefined {
  const id = quoteId ?? accepted?.extra?.quoteId ?? undefined;
  // What is no text is the id of no quote.
  return id === undefined || typeof id === 'string' ? id : '';
}
