import type { PaymentCheck } from '@granary/shared/gen/granary/payments/v1/PaymentCheck';
import type { PaymentState } from '@granary/shared/gen/granary/payments/v1/PaymentState';
import type { PayRequest } from '@granary/shared/gen/granary/payments/v1/PayRequest';
import type { Settlement } from '@granary/shared/gen/granary/payments/v1/Settlement';
import type { SettledPayment } from '@granary/shared/gen/granary/payments/v1/SettledPayment';
import { neverAborted, type CancelSignal } from '@granary/shared/concurrency/cancellation';
import { invalid, notFound, ServiceError, unavailable } from '@granary/shared/errors';
import { parseUtia } from '@granary/shared/money/amounts';
import { message } from '@granary/shared/rpc/types';
import { refused } from '../payment-refused';
import type { Offer } from '../quotes/offer';
import { identifierOf, paymentIdentifierIn } from '../quotes/payment-identifier';
import {
  fingerprintOf,
  namesSecretQuote,
  readPayment,
  verifyPresented,
  type PresentedSettings,
} from '../quotes/presented-payment';
import {
  isMoved,
  transferHashOf,
  type Claim,
  type ClaimConflict,
  type ClaimedPurchase,
  type TakenClaim,
} from './claim';
import { readToken, tokenOf, type CheckedPayment } from './checked-payment';
import type { Claims } from './claims';
import type { Settler } from './settler';

/** A longer answer is not kept. */
const answerBytesMax = 1_048_576;
/**
 * How long an upfront payment can be repeated after its work was begun. For a day, its ticket keeps a repetition
 * from doing the work twice (docs/guide/documents.md, Idempotency-Key); this is an hour less.
 */
const usableMs = 23 * 3_600_000;

export interface PaymentsOptions {
  presented: PresentedSettings;
  claims: Claims;
  settler: Settler;
  /** How long a request waits for its settlement. */
  X402_SETTLE_WAIT_MS: number;
  now: () => Date;
}

/** The claim that a payment has already, or the payment as it was verified, now or by the token. */
type FoundPayment = { kind: 'claimed'; claim: Claim } | { kind: 'verified'; checked: CheckedPayment };

/** Payments that requests carry: each pays for one request, once. */
export class RequestPayments {
  constructor(private readonly options: PaymentsOptions) {}

  /** Whether a payment pays for its request. Stores nothing. Throws PAYMENT_REFUSED, IDEMPOTENCY_KEY_REUSED. */
  async check(request: PayRequest): Promise<PaymentCheck> {
    const { presented, now } = this.options;
    const payment = await this.find(request);
    // A gateway of the previous release passes the answer of a read only where this is set.
    const hasIdentifier = true;
    if (payment.kind === 'verified') {
      const { checked } = payment;
      const token = await tokenOf(presented.offers.keys, request, checked, now());
      return message<PaymentCheck>({ paidUtia: worthOf(checked, request).toString(), hasIdentifier, token });
    }
    const { claim } = payment;
    const settlement = settlementOf(claim);
    const paidUtia = claim.amountUtia.toString();
    if (request.purchase!.isUpfront && isMoved(claim)) {
      return message<PaymentCheck>({ paidUtia, hasIdentifier, settlement });
    }
    if (claim.redeemedAt) {
      return message<PaymentCheck>({ paidUtia, hasIdentifier, answer: claim.answer!, settlement });
    }
    return message<PaymentCheck>({ paidUtia: worthOfMoved(claim.amountUtia, request).toString(), hasIdentifier });
  }

  /**
   * Settles the payment until a block has its transfer, and redeems it, once, unless that is done later or `signal`
   * says that nobody waits for it any more: the same request then goes on. A repetition gets the answer of the first.
   * Throws what `check` throws.
   */
  async settle(request: PayRequest, signal: CancelSignal = neverAborted): Promise<Settlement> {
    const { claims } = this.options;
    const taken = await this.take(request);
    const claim = await this.moved(taken, signal);
    const { isUpfront } = request.purchase!;
    if (signal.aborted && !isUpfront) throw unavailable('The payment was settled too late to be answered');
    if (!isMoved(claim)) return settlementOf(claim);
    if (isUpfront) {
      if (!claim.redeemedAt && !claim.begunAt) await claims.begun(claim.id);
      return settlementOf(claim);
    }
    if (claim.redeemedAt || !(await claims.redeem(claim.id, this.keptAnswer(claim, request, taken.checked)))) {
      return this.repeated(claim, request);
    }
    return settlementOf(claim);
  }

  /**
   * Redeems an upfront payment whose write was done. Repeatable. Throws TASK_NOT_FOUND for one whose money was not
   * moved.
   */
  async redeem(ticketId: string): Promise<void> {
    const { claims } = this.options;
    const claim = await claims.byTicket(ticketId);
    if (!claim || !isMoved(claim)) throw notFound('TASK_NOT_FOUND', 'There is no payment that is settled');
    await claims.redeem(claim.id, null);
  }

  /** The state of a payment. Throws TASK_NOT_FOUND. */
  async state(ticketId: string): Promise<PaymentState> {
    const claim = await this.options.claims.byTicket(ticketId);
    if (!claim) throw notFound('TASK_NOT_FOUND', 'There is no such task');
    const { appId, payer, createdAt, updatedAt, refusedBecause } = claim;
    return message<PaymentState>({
      ticketId,
      status: statusOf(claim),
      appId: appId ?? '',
      payer,
      createdAt: createdAt.toISOString(),
      updatedAt: updatedAt.toISOString(),
      error: statusOf(claim) === 'Failed' ? `The payment was refused: ${refusedBecause!}` : undefined,
      payment: isMoved(claim) ? settledPayment(claim) : undefined,
    });
  }

  private async take(request: PayRequest): Promise<TakenClaim & { checked?: CheckedPayment | undefined }> {
    const payment = await this.find(request);
    if (payment.kind === 'claimed') return { claim: payment.claim };
    const { checked } = payment;
    const { verified, purchase } = checked;
    const { identifier } = purchase;
    this.options.settler.assertFree(purchase.network);
    const taken = await this.options.claims.take(verified, purchase);
    // Another request with the same payment or the same identifier may have stored its claim first.
    const first = taken === 'identifier_used' ? await this.identified(request, identifier!) : undefined;
    if (first) return { claim: first };
    if (typeof taken === 'string') throw conflicts[taken]();
    if (!taken.isNew) this.assertSame(taken.claim, request, identifier);
    return { ...taken, checked };
  }

  /**
   * The claim once a block has its transfer, or the wait is over. Throws PAYMENT_REFUSED for a payment that the network
   * refuses.
   */
  private async moved(taken: TakenClaim, signal: CancelSignal): Promise<Claim> {
    const claim = await this.options.settler.settle(taken, this.options.X402_SETTLE_WAIT_MS, signal);
    if (claim.state === 'refused' && !claim.redeemedAt) throw refusedByNetwork(claim);
    return claim;
  }

  /**
   * The answer to keep for a repetition; null where none is kept. A repetition must prove itself by something that
   * others cannot read on the chain: its identifier, or a quote that stays secret.
   */
  private keptAnswer(
    { identifier, network }: Claim,
    { answer, paymentJson }: PayRequest,
    checked: CheckedPayment | undefined,
  ): Buffer | null {
    const { networks } = this.options.presented.offers;
    const hasSecretQuote = () => namesSecretQuote(networks.get(network), readPayment(paymentJson));
    const isSecret = identifier !== null || (checked?.hasSecretQuote ?? hasSecretQuote());
    return isSecret && answer && answer.length <= answerBytesMax ? answer : null;
  }

  /** The answer of the request that came first. Throws PAYMENT_REFUSED where none is kept for this one. */
  private async repeated({ id }: Claim, request: PayRequest): Promise<Settlement> {
    const granted = await this.options.claims.byId(id);
    if (!granted?.answer) throw alreadyUsed();
    this.assertSame(granted, request, identifierIn(request, granted.payer));
    return message<Settlement>({ ...settlementOf(granted), answer: granted.answer });
  }

  /** Throws what `check` throws, also where the payment has a claim that is not for this request. */
  private async find(request: PayRequest): Promise<FoundPayment> {
    const { claims } = this.options;
    const { appId, requestHash } = request.purchase!;
    const fingerprint = fingerprintOf(request.paymentJson);
    const earlier = await this.checkedBefore(request, fingerprint);
    const claim = await claims.byFingerprint(fingerprint, appId, requestHash);
    if (claim)
      return this.claimFor(claim, request, earlier ? earlier.purchase.identifier : identifierIn(request, claim.payer));
    const { refusal, ...checked } = earlier
      ? { ...earlier, refusal: undefined }
      : await this.verify(request, fingerprint);
    const { verified, purchase } = checked;
    const other = await claims.find(verified.scope, verified.key);
    if (other) return this.claimFor(other, request, purchase.identifier);
    const first = purchase.identifier && (await this.identified(request, purchase.identifier));
    if (first) return { kind: 'claimed', claim: first };
    if (refusal) throw refusal;
    return { kind: 'verified', checked };
  }

  /** The payment as `check` has verified it a moment ago, while its network takes payments. */
  private async checkedBefore(request: PayRequest, fingerprint: Buffer): Promise<CheckedPayment | undefined> {
    if (!request.token) return undefined;
    const { presented, now } = this.options;
    const { keys, networks } = presented.offers;
    const checked = await readToken(keys, request, { token: request.token, fingerprint }, now());
    return checked && networks.get(checked.purchase.network)?.isOpen() ? checked : undefined;
  }

  private async verify(
    request: PayRequest,
    fingerprint: Buffer,
  ): Promise<CheckedPayment & { refusal: ServiceError | undefined }> {
    const { presented: settings } = this.options;
    const payment = readPayment(request.paymentJson);
    // An identifier that is not valid is refused before anything is asked of a network.
    const paymentIdentifier = paymentIdentifierIn(payment);
    const { offer, verified, isSent } = await verifyPresented(settings, request.purchase!, payment);
    const { refusal, ...rest } = verified;
    const identifier = identifierOf(request.identifier, paymentIdentifier, verified.payer);
    const purchase = purchaseOf(offer, fingerprint, identifier);
    const hasSecretQuote = namesSecretQuote(settings.offers.networks.get(purchase.network), payment);
    return { verified: rest, purchase, isSent, hasSecretQuote, refusal };
  }

  /**
   * The claim of the same request under the identifier, paid before by another payment, which is not taken then. Throws
   * IDEMPOTENCY_KEY_REUSED where the request was another one.
   */
  private async identified(request: PayRequest, identifier: Buffer): Promise<Claim | undefined> {
    const { appId, requestHash } = request.purchase!;
    const claim = await this.options.claims.byIdentifier(appId, identifier);
    if (!claim) return undefined;
    if (!claim.requestHash.equals(requestHash)) throw identifierReused();
    this.assertSame(claim, request, identifier);
    return claim;
  }

  private claimFor(claim: Claim, request: PayRequest, identifier: Buffer | null): FoundPayment {
    this.assertSame(claim, request, identifier);
    return { kind: 'claimed', claim };
  }

  /** Throws PAYMENT_REFUSED unless the claim is for the same request, and is worth something to it. */
  private assertSame(claim: Claim, { purchase, paymentJson }: PayRequest, identifier: Buffer | null): void {
    const isSame = claim.appId === purchase!.appId && claim.requestHash.equals(purchase!.requestHash);
    if (!isSame) throw alreadyUsed();
    if (claim.state === 'refused' && !claim.redeemedAt) throw refusedByNetwork(claim);
    if (purchase!.isUpfront) return this.assertUsable(claim);
    if (!claim.redeemedAt) return;
    const isRepeated = claim.identifier
      ? identifier?.equals(claim.identifier) === true
      : fingerprintOf(paymentJson).equals(claim.fingerprint);
    if (!isRepeated || claim.answer === null) throw alreadyUsed();
  }

  /**
   * Throws PAYMENT_REFUSED once an upfront payment is too old to be repeated. Until then, its work is done under its
   * ticket, so a repetition does nothing more.
   */
  private assertUsable({ begunAt, redeemedAt, settledAt }: Claim): void {
    // Older releases did not store when that was begun; where it was not, a payment that was noticed late still pays.
    const since = begunAt ?? (redeemedAt ? settledAt : null);
    if (since && this.options.now().getTime() - since.getTime() > usableMs) throw alreadyUsed();
  }
}

/** The status of a payment as tasks show it. */
function statusOf({ state, sentAt, begunAt, redeemedAt }: Claim): string {
  if (redeemedAt) return 'Completed';
  if (state === 'refused') return 'Failed';
  if (begunAt) return 'StoringData';
  if (state === 'claimed') return 'Pending';
  if (state === 'settling') return sentAt ? 'PaymentConfirming' : 'PaymentBroadcast';
  return 'PaymentConfirmed';
}

export const alreadyUsed = (): ServiceError => refused('payment_already_used', 'The payment was used before');

export const tooManyPayments =
  'The payer has too many payments under way on this network: repeat the request once some of them have ended';

const identifierReused = (): ServiceError =>
  invalid('The identifier was used with another payment', {}, 'IDEMPOTENCY_KEY_REUSED');

const conflicts: Readonly<Record<ClaimConflict, () => ServiceError>> = {
  payer_busy: () => refused('too_many_payments', tooManyPayments),
  identifier_used: identifierReused,
  quote_used: () => refused('quote_used', 'The quote was paid by another payment'),
};

const refusedByNetwork = ({ refusedBecause }: Claim): ServiceError =>
  refused(refusedBecause!, 'The network refuses the payment');

/** The identifier of a request of a payer: its Idempotency-Key, and the identifier in its payment. */
const identifierIn = ({ identifier, paymentJson }: PayRequest, payer: string): Buffer | null =>
  identifierOf(identifier, paymentIdentifierIn(readPayment(paymentJson)), payer) ?? null;

const purchaseOf = (
  { method, request, quoteId, terms, amount }: Offer,
  fingerprint: Buffer,
  identifier: Buffer | undefined,
): ClaimedPurchase => ({
  appId: request.appId,
  requestHash: request.requestHash,
  quoteId,
  amount,
  fingerprint,
  amountUtia: terms.amountUtia,
  appSharePpm: terms.appSharePpm,
  network: method.network,
  asset: method.asset,
  identifier: identifier ?? null,
});

/** The worth of a payment to its request: the amount of its quote. */
const worthOf = ({ purchase, isSent }: CheckedPayment, request: PayRequest): bigint =>
  isSent ? worthOfMoved(purchase.amountUtia, request) : purchase.amountUtia;

/** Where the price has grown since the money was moved, the payment is still worth what it was made for. */
function worthOfMoved(amountUtia: bigint, { purchase }: PayRequest): bigint {
  const price = parseUtia(purchase!.amountUtia);
  return amountUtia > price ? amountUtia : price;
}

const settlementOf = (claim: Claim): Settlement =>
  message<Settlement>({ ticketId: claim.ticketId, payment: isMoved(claim) ? settledPayment(claim) : undefined });

function settledPayment(claim: Claim): SettledPayment {
  const { network, payer, amount, blockHeight } = claim;
  const confirmedAt = claim.settledAt ?? claim.includedAt;
  return {
    network,
    transaction: transferHashOf(claim),
    payer,
    amount: amount.toString(),
    blockHeight: (blockHeight ?? 0n).toString(),
    confirmedAt: confirmedAt!.toISOString(),
  };
}
