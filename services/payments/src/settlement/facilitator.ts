import { sameValue } from '../verify/members';
import { readEnvelope, type Envelope, type ExactPayment, type Requirement } from '../verify/envelope';
import { Refusal } from '../verify/refusal';
import type { VerifiedPayment } from '../verify/verified-payment';
import { createHash } from 'node:crypto';
import { unavailable } from '@granary/shared/errors';
import { readJson, toText, type JsonObject, type JsonValue } from '@granary/shared/json/value';
import { requirementText, type Offer } from '../quotes/offer';
import { findOffer, minimumOf } from '../quotes/offers';
import { inAsset } from '../quotes/rates';
import type { PresentedSettings } from '../quotes/presented-payment';
import { isMoved, transferHashOf, type Claim, type ClaimedPurchase } from './claim';
import type { Claims } from './claims';
import { tooManyPayments } from './payments';
import type { Settler } from './settler';

export interface FacilitatorOptions {
  presented: PresentedSettings;
  claims: Claims;
  settler: Settler;
  /** `own`: requirements that this service has issued; `open`: also those of others. */
  X402_SETTLE: 'own' | 'open';
  X402_SETTLE_WAIT_MS: number;
}

/** How long payments for requirements of others may last. */
const othersLastMs = 15 * 60_000;

/** How facilitators of x402 answer. */
type Result =
  | { success: true; transaction: string; network: string; payer: string; amount: string }
  | {
      success: false;
      errorReason: string;
      errorMessage: string;
      transaction: string;
      network: string;
      payer?: string;
    };

/**
 * Settles a payment for the requirements beside it, as a facilitator. Requirements of this service are those with a
 * quote that it has made; their payment then still pays for the request that they were made for. Those of others are
 * settled if the operator allows it, once. Throws VALIDATION_FAILED for a body that is not well-formed.
 */
export async function settleRequirements(
  options: FacilitatorOptions,
  body: Buffer,
  maySettleOthers: boolean,
): Promise<Result> {
  const envelope = readEnvelope(body);
  try {
    const { payment, verified } = await options.presented.verifier.verifyEnvelope(envelope);
    const purchase = await purchaseOf(options, envelope, payment, verified, maySettleOthers);
    const { scope, key } = verified;
    const isOpen = options.presented.offers.networks.get(purchase.network)!.isOpen();
    if (!isOpen && !(await options.claims.find(scope, key))) {
      throw new Refusal('settlement_unavailable', 'Payments on this network are not settled at the moment');
    }
    return await settle(options, payment.version, verified, purchase);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const { reason, message, payer } = error;
    return failure(reason, message, textOf(envelope.requirement.get('network')), payer);
  }
}

async function settle(
  { claims, settler, X402_SETTLE_WAIT_MS: waitMs }: FacilitatorOptions,
  version: 1 | 2,
  verified: VerifiedPayment,
  purchase: ClaimedPurchase,
): Promise<Result> {
  const { network, appId, requestHash } = purchase;
  settler.assertFree(network);
  const taken = await claims.take(verified, purchase);
  const duplicate = () => failure('duplicate_settlement', 'The payment was settled before', network, verified.payer);
  if (taken === 'payer_busy') return failure('too_many_payments', tooManyPayments, network, verified.payer);
  if (typeof taken === 'string') return duplicate();
  const isSame = taken.claim.appId === appId && taken.claim.requestHash.equals(requestHash);
  if (!isSame) return duplicate();
  const claim = await settler.settle(taken, waitMs);
  if (claim.state === 'refused' && !claim.redeemedAt) {
    return failure(claim.refusedBecause!, 'The network refuses the payment', network, claim.payer);
  }
  if (!isMoved(claim)) {
    // Servers of version 1 know no pending settlements: they would take it for a payment that has failed, and it may
    // still arrive.
    if (version === 1) throw unavailable('The payment is being settled: repeat the call to learn whether it was');
    const pending = failure('settlement_pending', 'The payment is being settled', network, claim.payer);
    return { ...pending, transaction: claim.transaction?.hash ?? '' };
  }
  // Nothing here keeps what others sell from being given twice for one payment.
  if (appId === null && !(await claims.redeem(claim.id, null))) return duplicate();
  return success(claim);
}

const success = (claim: Claim): Result => ({
  success: true,
  transaction: transferHashOf(claim),
  network: claim.network,
  payer: claim.payer,
  amount: claim.amount.toString(),
});

const failure = (errorReason: string, errorMessage: string, network: string, payer?: string) => ({
  success: false as const,
  errorReason,
  errorMessage,
  transaction: '',
  network,
  ...(payer !== undefined && { payer }),
});

const textOf = (value: JsonValue | undefined): string => (typeof value === 'string' ? value : '');

/** The purchase that the payment is for. Throws a Refusal for requirements that are not settled here. */
async function purchaseOf(
  { presented, X402_SETTLE: settles }: FacilitatorOptions,
  envelope: Envelope,
  { version, requirement }: ExactPayment,
  verified: VerifiedPayment,
  maySettleOthers: boolean,
): Promise<ClaimedPurchase> {
  const { network, asset, amount } = requirement;
  if (!presented.offers.networks.has(network)) {
    throw new Refusal('invalid_network', 'Payments on this network are not settled here');
  }
  const offer = await offerOf(presented, envelope.requirement, version);
  const fingerprint = createHash('sha256').update(toText(envelope.payment)).digest();
  if (offer) {
    if (offer.terms.expiresAtSeconds * 1_000 <= presented.offers.now().getTime()) {
      throw new Refusal('invalid_payment_requirements', 'The quote has expired');
    }
    const { request, quoteId, terms } = offer;
    return {
      appId: request.appId,
      requestHash: request.requestHash,
      quoteId,
      fingerprint,
      identifier: null,
      amountUtia: terms.amountUtia,
      appSharePpm: terms.appSharePpm,
      network,
      asset: offer.method.asset,
      amount,
    };
  }
  if (settles !== 'open' || !maySettleOthers) {
    throw new Refusal('invalid_payment_requirements', 'Only requirements that this service has made are settled here');
  }
  assertNotOurs(presented, requirement);
  assertEndsSoon(presented, network, verified);
  await assertEnough(presented, requirement);
  return {
    appId: null,
    requestHash: othersHashOf(envelope),
    quoteId: null,
    fingerprint,
    identifier: null,
    amountUtia: 0n,
    appSharePpm: 0,
    network,
    asset,
    amount,
  };
}

/**
 * Throws a Refusal for requirements that pay this service and have no quote of it: the money would be credited to
 * nobody.
 */
function assertNotOurs({ offers }: PresentedSettings, { network, payTo }: Requirement): void {
  const spelled = (address: string) => spelledOn(offers, network, address);
  const isOurs = offers
    .methods()
    .some((method) => method.network === network && spelled(method.payTo) === spelled(payTo));
  if (!isOurs) return;
  throw new Refusal(
    'invalid_payment_requirements',
    'payTo is the address of this service, which sells by its own quotes only',
  );
}

/** The address of an account or a token on a network, in its one spelling. */
const spelledOn = ({ networks }: PresentedSettings['offers'], network: string, address: string): string =>
  networks.get(network)?.spelledOnce?.(address) ?? address;

/** The hash of a requirement of others, to which payments for it are bound. */
export const othersHashOf = ({ requirement }: Pick<Envelope, 'requirement'>): Buffer =>
  createHash('sha256').update(toText(requirement)).digest();

/** Throws a Refusal for a payment that would be looked for too long, if its transaction fails. */
function assertEndsSoon({ offers }: PresentedSettings, network: string, { validUntilSeconds }: VerifiedPayment): void {
  const reason = offers.networks.get(network)?.tooLongReason;
  if (reason === undefined || validUntilSeconds * 1_000 <= offers.now().getTime() + othersLastMs) return;
  const minutes = othersLastMs / 60_000;
  throw new Refusal(reason, `Payments for others are settled here that end at most ${minutes} minutes ahead`);
}

/**
 * Throws a Refusal for what others sell for less than its settlement has to bring in; also where its asset has no rate
 * by which to see that.
 */
async function assertEnough({ offers }: PresentedSettings, { network, asset, amount }: Requirement): Promise<void> {
  const minimum = minimumOf(offers, network);
  if (minimum === 0n) return;
  const rate = (await offers.rates.current()).get(`${network}/${spelledOn(offers, network, asset)}`);
  if (!rate) throw new Refusal('invalid_payment_requirements', 'The asset has no rate here');
  const least = inAsset(rate, minimum);
  if (amount >= least) return;
  throw new Refusal('invalid_payment_requirements', `Payments in this asset are settled from ${least} units on`);
}

/** The offer of this service that requirements are; undefined for those of others. */
async function offerOf(
  { offers }: PresentedSettings,
  requirement: JsonObject,
  version: 1 | 2,
): Promise<Offer | undefined> {
  const extra = requirement.get('extra');
  if (!(extra instanceof Map)) return undefined;
  const [quoteId, appId, request] = ['quoteId', 'app', 'request'].map((name) => textOf(extra.get(name)));
  const requestHash = Buffer.from(request!, 'base64url');
  const isUpfront = extra.get('paymentFlow') === 'upfront';
  const offer = await findOffer(offers, { appId: appId!, requestHash, isUpfront }, quoteId!);
  if (!offer) return undefined;
  const issued = readJson(Buffer.from(requirementText(version, offer)), { maxDepth: 16 }) as JsonObject;
  // Version 1 also says what it is for, in texts that nothing depends on.
  return [...issued].every(([name, value]) => sameValue(value, requirement.get(name))) ? offer : undefined;
}
