import type { OfferReadRequest } from '@granary/shared/gen/granary/payments/v1/OfferReadRequest';
import type { PaymentNetwork } from '@granary/shared/gen/granary/payments/v1/PaymentNetwork';
import type { PaymentOffer } from '@granary/shared/gen/granary/payments/v1/PaymentOffer';
import type { Purchase } from '@granary/shared/gen/granary/payments/v1/Purchase';
import { message } from '@granary/shared/rpc/types';
import { parseUtia } from '@granary/shared/money/amounts';
import { appShareOf } from '../settings/app-share';
import { extraText, requirementText, validSeconds, type Offer, type QuotedRequest } from './offer';
import type { PaymentMethod } from '../networks/payment-method';
import { paymentIdentifierExtension } from './payment-identifier';
import type { QuotedNetwork } from '../networks/quoted-network';
import { makeQuoteId, readQuoteId, type QuoteTerms } from './quote-id';
import type { QuoteKeys } from './quote-keys';
import { inAsset, type Rate, type Rates } from './rates';

export interface OfferSettings {
  keys: QuoteKeys;
  /** The ways to pay that are known so far, in the order in which they are offered. */
  methods: () => readonly PaymentMethod[];
  /** Whether all of them are known; without it they are. */
  areKnown?: () => boolean;
  rates: Rates;
  /**
   * The least that a payment on a network is for, in utia: this service pays its fees. Without it, nothing is too
   * little.
   */
  minUtia?: (network: string) => bigint;
  /** The networks on which payments are settled here, by their CAIP-2 names. */
  networks: ReadonlyMap<string, QuotedNetwork>;
  APP_SHARE_PERCENT: number;
  now: () => Date;
}

/** Clients refuse answers with more headers than 16 KiB. This is a header of 8,000 characters, before base64. */
const headerBytesMax = 6_000;
/** A longer text may be shortened in the header. */
const textLengthMax = 500;

/**
 * How a request may be paid for: on networks on which payments are settled here, and not closed at the moment; for a
 * grant also on those that are, or that its application does not take. Stores nothing.
 */
export async function offerRead(settings: OfferSettings, request: OfferReadRequest): Promise<PaymentOffer> {
  const { isForGrant } = request;
  const all = await offersFor(settings, isForGrant ? { ...request.purchase!, networks: null } : request.purchase!);
  const offers = all.filter(({ method }) => isForGrant || settings.networks.get(method.network)?.isOpen() === true);
  const about =
    `,"resource":${JSON.stringify(request.resource)},"description":${JSON.stringify(request.description)}` +
    ',"mimeType":"application/json"}';
  const accepts: string[] = [];
  const requirements: string[] = [];
  for (const offer of offers) {
    const extra = extraText(offer);
    requirements.push(requirementText(2, offer, extra));
    if (offer.method.version1Network === undefined) continue;
    accepts.push(requirementText(1, offer, extra).slice(0, -1) + about);
  }
  return message<PaymentOffer>({
    acceptsJson: `[${accepts.join()}]`,
    header: offers.length === 0 ? undefined : headerOf(request, requirements),
    tooLittle: offers.length === 0 ? tooLittleFor(settings, request.purchase!) : undefined,
  });
}

/** The least that a payment on a network is for, in utia. */
export const minimumOf = ({ minUtia }: OfferSettings, network: string): bigint => minUtia?.(network) ?? 0n;

/**
 * Names the networks that the application takes but whose minimum the purchase does not reach, with their minimums.
 * Undefined when there are none.
 */
export function tooLittleFor(settings: OfferSettings, { amountUtia, networks }: Purchase): string | undefined {
  const taken = settings.methods().filter(({ network }) => !networks || networks.names.includes(network));
  const minimums = new Map(taken.map(({ network }) => [network, minimumOf(settings, network)]));
  const tooHigh = [...minimums].filter(([, minimum]) => parseUtia(amountUtia) < minimum);
  if (tooHigh.length === 0) return undefined;
  const parts = tooHigh.map(([network, minimum]) => `on ${network} from ${minimum} utia on`);
  return `Payments are taken ${parts.join(', ')}`;
}

/**
 * New quotes for the present price of a purchase: one for each method whose asset has a rate, on the networks whose
 * minimum it reaches and which its application accepts.
 */
export async function offersFor(settings: OfferSettings, purchase: Purchase): Promise<Offer[]> {
  const terms = {
    expiresAtSeconds: Math.floor(settings.now().getTime() / 1_000) + validSeconds,
    amountUtia: parseUtia(purchase.amountUtia),
    appSharePpm: appShareOf(settings, purchase.appSharePpm),
  };
  const { appId, requestHash, isUpfront, networks } = purchase;
  const request = { appId, requestHash, isUpfront };
  const [rates, key] = await Promise.all([settings.rates.current(), settings.keys.current()]);
  return settings.methods().flatMap((method): Offer[] => {
    if (networks && !networks.names.includes(method.network)) return [];
    if (terms.amountUtia < minimumOf(settings, method.network)) return [];
    const rate = method.rateOf === undefined ? undefined : rates.get(method.rateOf);
    if (method.rateOf !== undefined && !rate) return [];
    const quoteId = makeQuoteId(key, bindingOf(purchase, method, rate), terms);
    return [{ method, request, quoteId, terms, amount: amountOf(terms, rate) }];
  });
}

/** The networks of the methods whose assets have rates, in their order. */
export async function offeredNetworks({ methods, rates }: OfferSettings): Promise<PaymentNetwork[]> {
  const current = await rates.current();
  const rated = methods().filter(({ rateOf }) => rateOf === undefined || current.has(rateOf));
  const byName = new Map(rated.map((method) => [method.network, method]));
  return [...byName.values()].map(({ network, version1Network: version1Name, payTo }) =>
    message<PaymentNetwork>({ network, version1Name, payTo }),
  );
}

/** The offer with that quote for that request; undefined where there was none. It may have expired. */
export async function findOffer(
  { keys, methods, rates }: OfferSettings,
  request: QuotedRequest,
  quoteId: string,
): Promise<Offer | undefined> {
  const [recent, accepted] = await Promise.all([rates.recent(), keys.accepted()]);
  for (const method of methods()) {
    const ofMethod = method.rateOf === undefined ? [undefined] : recent.filter(({ asset }) => asset === method.rateOf);
    for (const rate of ofMethod) {
      const binding = bindingOf(request, method, rate);
      for (const key of accepted) {
        const terms = readQuoteId(key, binding, quoteId);
        if (terms) return { method, request, quoteId, terms, amount: amountOf(terms, rate) };
      }
    }
  }
  return undefined;
}

const amountOf = ({ amountUtia }: QuoteTerms, rate: Rate | undefined): bigint =>
  rate ? inAsset(rate, amountUtia) : amountUtia;

const bindingOf = (
  { appId, requestHash }: Pick<QuotedRequest, 'appId' | 'requestHash'>,
  { network, asset, payTo }: PaymentMethod,
  rate: Rate | undefined,
) => ({ appId, requestHash, network, asset, payTo, rateRevision: rate?.revision ?? 0 });

/**
 * The header of version 2 with requirements, as long as clients take it. What does not fit is left out: first the query
 * string of the URL, then its path and the end of the texts where these are long, then requirements, from the last one
 * on.
 */
function headerOf(request: OfferReadRequest, requirements: readonly string[]): string {
  return Buffer.from(fittingJson(request, requirements)).toString('base64');
}

function fittingJson(request: OfferReadRequest, requirements: readonly string[]): string {
  let shortest: HeaderTexts = request;
  for (shortest of shorterAndShorter(request)) {
    const json = headerJson(shortest, requirements);
    if (Buffer.byteLength(json) <= headerBytesMax) return json;
  }
  const listed: string[] = [];
  // No comma stands before the first.
  let bytes = Buffer.byteLength(headerJson(shortest, [])) - 1;
  for (const requirement of requirements) {
    bytes += Buffer.byteLength(requirement) + 1;
    if (bytes > headerBytesMax) break;
    listed.push(requirement);
  }
  return headerJson(shortest, listed);
}

type HeaderTexts = Pick<OfferReadRequest, 'resource' | 'description' | 'error'>;

/** The texts as they are, which mostly fit, and then shorter ones. */
function* shorterAndShorter({ resource, description, error }: HeaderTexts): Generator<HeaderTexts, void> {
  yield { resource, description, error };
  const withoutQuery = resource.split('?')[0]!;
  yield { resource: withoutQuery, description, error };
  const origin = withoutQuery.split('/', 3).join('/');
  const shortened = (text: string) => (text.length <= textLengthMax ? text : `${text.slice(0, textLengthMax)}…`);
  yield {
    resource: withoutQuery.length <= textLengthMax ? withoutQuery : origin,
    description: shortened(description),
    error: shortened(error),
  };
}

const extensionsText = JSON.stringify(paymentIdentifierExtension);

function headerJson({ resource, description, error }: HeaderTexts, accepts: readonly string[]): string {
  const about =
    `{"x402Version":2,"error":${JSON.stringify(error)},"resource":{"url":${JSON.stringify(resource)}` +
    `,"description":${JSON.stringify(description)},"mimeType":"application/json"}`;
  return `${about},"accepts":[${accepts.join()}],"extensions":${extensionsText}}`;
}
