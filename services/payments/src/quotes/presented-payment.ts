import { createHash } from 'node:crypto';
import type { Purchase } from '@granary/shared/gen/granary/payments/v1/Purchase';
import { JsonNumber, readJson, type JsonObject } from '@granary/shared/json/value';
import { unavailable, type ServiceError } from '@granary/shared/errors';
import { parseUtia } from '@granary/shared/money/amounts';
import { refused } from '../payment-refused';
import { Refusal } from '../verify/refusal';
import { readExactPayment } from '../verify/envelope';
import type { Verifier } from '../verify/verifier';
import type { VerifiedPayment } from '../verify/verified-payment';
import type { QuotedNetwork } from '../networks/quoted-network';
import { requirementText, type Offer } from './offer';
import { findOffer, offersFor, tooLittleFor, type OfferSettings } from './offers';

const depthMax = 16;

export interface PresentedSettings {
  offers: OfferSettings;
  verifier: Verifier;
}

/** A payment whose content pays for a request. */
export interface PresentedPayment {
  offer: Offer;
  verified: VerifiedPayment;
  /** The payer has sent it, so its money has moved. */
  isSent: boolean;
}

/** The JSON object that a request carries as its payment. Throws a JsonError. */
export const readPayment = (paymentJson: Buffer): JsonObject =>
  readJson(paymentJson, { maxDepth: depthMax }) as JsonObject;

export const fingerprintOf = (paymentJson: Buffer): Buffer => createHash('sha256').update(paymentJson).digest();

/**
 * Verifies a payment against the requirement of its quote, as it was issued; one of version 1 that names no quote,
 * against what the request costs now. Rejects with PAYMENT_REFUSED.
 */
export async function verifyPresented(
  settings: PresentedSettings,
  purchase: Purchase,
  payment: JsonObject,
): Promise<PresentedPayment> {
  const version = (payment.get('x402Version') as JsonNumber).text === '2' ? 2 : 1;
  const offers = await candidates(settings, purchase, payment, version);
  let refusal: Refusal | undefined;
  for (const offer of offers) {
    const network = settings.offers.networks.get(offer.method.network);
    if (!network) assertNetworksKnown(settings.offers);
    const isSent = isSentOn(network, payment);
    const isByGrant = !isSent && hasUserKey(payment) && network?.verifyKey !== undefined;
    if (!network || (!isByGrant && !network.isOpen())) throw notSettled();
    try {
      const requirement = readJson(Buffer.from(requirementText(version, offer)), { maxDepth: depthMax });
      const envelope = { payment, requirement: requirement as JsonObject };
      const byNetwork = verifiedByNetwork(network, payment);
      const verified = byNetwork
        ? await byNetwork(readExactPayment(envelope), { ...offer.terms, id: offer.quoteId })
        : (await settings.verifier.verifyEnvelope(envelope)).verified;
      const refusalNow = isByGrant ? (notTaken(network, offer, purchase) ?? verified.refusal) : verified.refusal;
      return { offer, verified: { ...verified, refusal: refusalNow }, isSent };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      refusal ??= error;
    }
  }
  if (refusal) throw refused(refusal.reason, refusal.message);
  assertNetworksKnown(settings.offers);
  const tooLittle = tooLittleFor(settings.offers, purchase);
  throw refused('invalid_network', tooLittle ?? 'Payments on this network are not taken');
}

const notSettled = (): ServiceError =>
  refused('settlement_unavailable', 'Payments on this network are not settled here at the moment');

/** Why nothing more is taken under grants now. What was taken before goes on. */
function notTaken(network: QuotedNetwork, { method }: Offer, { networks }: Purchase): ServiceError | undefined {
  if (networks && !networks.names.includes(method.network)) {
    return refused('invalid_network', 'The application does not take payments on this network');
  }
  return network.isOpen() ? undefined : notSettled();
}

async function candidates(
  settings: PresentedSettings,
  purchase: Purchase,
  payment: JsonObject,
  version: 1 | 2,
): Promise<Offer[]> {
  const quoteId = quoteIdIn(payment) ?? quoteInMemo(settings.verifier, payment);
  if (quoteId === undefined && version === 1 && !namesTransaction(payment)) {
    const offers = await offersFor(settings.offers, purchase);
    return offers.filter(({ method }) => method.version1Network === payment.get('network'));
  }
  const offer = await findOffer(settings.offers, purchase, quoteId ?? '');
  if (!offer) {
    assertNetworksKnown(settings.offers);
    throw refused('quote_invalid', 'The payment is for a quote that this service has not made for this request');
  }
  const network = settings.offers.networks.get(offer.method.network);
  if (!network) assertNetworksKnown(settings.offers);
  // A payment that was already sent is not judged by the present time and price.
  if (isSentOn(network, payment)) return [offer];
  if (offer.terms.expiresAtSeconds <= Math.floor(settings.offers.now().getTime() / 1_000)) {
    throw refused('quote_expired', 'The quote of the payment has expired');
  }
  if (offer.terms.amountUtia < parseUtia(purchase.amountUtia)) {
    throw refused('quote_insufficient', 'The quote of the payment is for less than the read costs now');
  }
  return [offer];
}

/**
 * Throws UNAVAILABLE while a network is not known yet. A payment without a matching offer may be for that network, so
 * it must not be refused for good.
 */
function assertNetworksKnown({ areKnown }: OfferSettings): void {
  if (areKnown?.() === false) throw unavailable('The chain of the wallets is not known yet: the service is starting');
}

/**
 * Whether the payer has sent the money by himself. Where the network does not look for that, the name of a transaction
 * says nothing.
 */
const isSentOn = (network: QuotedNetwork | undefined, payment: JsonObject): boolean =>
  network?.verifySent !== undefined && namesTransaction(payment);

/** Whether a payment names a transaction, as one does that the payer has sent by himself. */
function namesTransaction(payment: JsonObject): boolean {
  const payload = payment.get('payload');
  return payload instanceof Map && payload.has('txHash');
}

/** The verification by the network, for a payment whose content alone does not prove it; undefined for others. */
function verifiedByNetwork(network: QuotedNetwork, payment: JsonObject) {
  if (network.verifySent && namesTransaction(payment)) return network.verifySent.bind(network);
  return hasUserKey(payment) && network.verifyKey ? network.verifyKey.bind(network) : undefined;
}

/** Whether a payment names a quote that is not on the chain beside its transfer, for others to read. */
export const namesSecretQuote = (network: QuotedNetwork | undefined, payment: JsonObject): boolean =>
  network?.keepsQuotesSecret === true && quoteIdIn(payment) !== undefined;

/** Whether a payment names the key of a grant in place of a transaction. */
function hasUserKey(payment: JsonObject): boolean {
  const payload = payment.get('payload');
  return payload instanceof Map && payload.has('userKey');
}

/** Version 1 need not repeat the quote of a transaction that names it. */
function quoteInMemo(verifier: Verifier, payment: JsonObject): string | undefined {
  const [network, payload] = [payment.get('network'), payment.get('payload')];
  return typeof network === 'string' && payload instanceof Map ? verifier.quoteInMemo(network, payload) : undefined;
}

/** The id of the quote in a payment of version 1 or version 2, if it carries one. */
function quoteIdIn(payment: JsonObject): string | undefined {
  const accepted = payment.get('accepted');
  const extra = accepted instanceof Map ? accepted.get('extra') : undefined;
  const id = payment.get('quoteId') ?? (extra instanceof Map ? extra.get('quoteId') : undefined) ?? undefined;
  // A value that is not a text cannot be the id of a quote, so it is read as an id that no quote has.
  return id === undefined || typeof id === 'string' ? id : '';
}
