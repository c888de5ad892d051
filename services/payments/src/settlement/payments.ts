import type { PaymentCheck } from '@granary/shared/gen/granary/payments/v1/PaymentCheck';
import type { PaymentState } from '@granary/shared/gen/granary/payments/v1/PaymentState';
import type { PayRequest } from '@granary/shared/gen/granary/payments/v1/PayRequest';
import type { Settlement } from '@granary/shared/gen/granary/payments/v1/Settlement';
import type { SettledPayment } from '@granary/shared/gen/granary/payments/v1/SettledPayment';
import { neverAborted, type CancelSignal } from '@granary/shared/concurrency/cancellation';
import { invalid, notFound, ServiceError, unavailable } from '@granary/shared/errors';
import { parseUtia } from '@granary/shared/money';
import { message } from '@granary/shared/rpc/types';
import { refused } from '../payment-refused';
import { identifierOf, paymentIdentifierIn } from '../quotes/payment-identifier';
import {
  fingerprintOf,
  readPayment,
  verifyPresented,
  type PresentedPayment,
  type PresentedSettings,
} from '../quotes/presented-payment';
import type { Claim, ClaimConflict, ClaimedPurchase, Claims, TakenClaim } from './claims';
import type { Settler } from './settler';

/** A longer answer is not kept. */
const answerBytesMax = 1_048_576;
/** What was done for an upfront payment is known under its ticket for a day (docs/api.md, Idempotency-Key): an hour less than that. */
const usableMs = 23 * 3_600_000;

export interface PaymentsOptions {
  presented: PresentedSettings;
  claims: Claims;
  settler: Settler;
  /** How long a request waits for its settlement. */
  X402_SETTLE_WAIT_MS: number;
  /** Called when payments were settled. */
  onSettled: () => void;
  now: () => Date;
}

/** Payments that requests carry: each pays for one request, once. */
export class RequestPayments {
  constructor(private readonly options: PaymentsOptions) {}

  /** Whether a payment pays for its request. Stores nothing. Throws PAYMENT_REFUSED, IDEMPOTENCY_KEY_REUSED. */
  async check(request: PayRequest): Promise<PaymentCheck> {
    const { claim, presented, identifier } = await this.find(request);
    if (!claim) {
      return message<PaymentCheck>({
        paidUtia: worthOf(presented!, request).toString(),
        hasIdentifier: identifier !== undefined,
      });
    }
    const hasIdentifier = claim.identifier !== null;
    if (request.purchase!.isUpfront && claim.settledAt) {
      const paidUtia = claim.amountUtia.toString();
      return message<PaymentCheck>({ paidUtia, hasIdentifier, settlement: settlementOf(claim) });
    }
    if (claim.state === 'granted') {
      return message<PaymentCheck>({
        ...{ paidUtia: claim.amountUtia.toString(), hasIdentifier, answer: claim.answer! },
        settlement: settlementOf(claim),
      });
    }
    return message<PaymentCheck>({ paidUtia: worthOfMoved(claim.amountUtia, request).toString(), hasIdentifier });
  }

  /**
   * Settles the payment, and grants what it pays for, once, unless that is done later or `signal` says that nobody waits for it any more:
   * the same request then goes on. Throws as `check` does.
   */
  async settle(request: PayRequest, signal: CancelSignal = neverAborted): Promise<Settlement> {
    const { answer, purchase } = request;
    const claim = await this.settled(await this.take(request));
    if (!claim.settledAt) return settlementOf(claim);
    if (purchase!.isUpfront) {
      if (claim.state === 'settled' && !claim.begunAt) await this.options.claims.begun(claim.id);
      return settlementOf(claim);
    }
    if (signal.aborted) throw unavailable('The payment was settled too late to be answered');
    const kept = claim.identifier && answer && answer.length <= answerBytesMax ? answer : null;
    if (!(await this.options.claims.grant(claim.id, kept))) throw alreadyUsed();
    return settlementOf(claim);
  }

  /** Grants what an upfront payment has paid for. Repeatable. Throws TASK_NOT_FOUND for one that is not settled. */
  async grant(ticketId: string): Promise<void> {
    const { claims } = this.options;
    const claim = await claims.byTicket(ticketId);
    if (!claim?.settledAt) throw notFound('TASK_NOT_FOUND', 'There is no payment that is settled');
    await claims.grant(claim.id, null);
  }

  /** The state of a payment. Throws TASK_NOT_FOUND. */
  async state(ticketId: string): Promise<PaymentState> {
    const claim = await this.options.claims.byTicket(ticketId);
    if (!claim) throw notFound('TASK_NOT_FOUND', 'There is no such task');
    const { appId, payer, createdAt, updatedAt, refusedBecause, settledAt } = claim;
    return message<PaymentState>({
      ...{ ticketId, status: statusOf(claim), appId: appId ?? '', payer },
      ...{ createdAt: createdAt.toISOString(), updatedAt: updatedAt.toISOString() },
      error: refusedBecause === null ? undefined : `The payment was refused: ${refusedBecause}`,
      payment: settledAt ? settledPayment(claim) : undefined,
    });
  }

  private async take(request: PayRequest): Promise<TakenClaim> {
    const { claim, presented, identifier, fingerprint } = await this.find(request);
    if (claim?.state === 'granted' && !request.purchase!.isUpfront) throw alreadyUsed();
    if (claim) return { claim };
    this.options.settler.assertFree(presented!.offer.method.network);
    const purchase = purchaseOf(presented!, fingerprint, identifier);
    const taken = await this.options.claims.take(presented!.verified, purchase);
    if (typeof taken === 'string') throw conflicts[taken]();
    // Of two requests with the same payment at the same time, one has stored it.
    if (!taken.isNew) this.assertSame(taken.claim, request, identifier);
    return taken;
  }

  /** Throws PAYMENT_REFUSED for a payment that the network refuses. */
  private async settled(taken: TakenClaim): Promise<Claim> {
    const claim = await this.options.settler.settle(taken, this.options.X402_SETTLE_WAIT_MS);
    if (claim.state === 'refused') throw refusedByNetwork(claim);
    if (claim.settledAt) this.options.onSettled();
    return claim;
  }

  /** The claim that a payment has already for this request, or what it is by what it contains. */
  private async find(request: PayRequest): Promise<{
    claim?: Claim;
    presented?: PresentedPayment;
    identifier: Buffer | undefined;
    fingerprint: Buffer;
  }> {
    const { claims, presented: settings } = this.options;
    const purchase = request.purchase!;
    const fingerprint = fingerprintOf(request.paymentJson);
    const payment = readPayment(request.paymentJson);
    const paymentIdentifier = paymentIdentifierIn(payment);
    const identifierFor = (payer: string) => identifierOf(request.identifier, paymentIdentifier, payer);
    const known = await claims.byFingerprint(fingerprint, purchase.appId, purchase.requestHash);
    if (known) return this.known(known, request, identifierFor(known.payer));
    const presented = await verifyPresented(settings, purchase, payment);
    const { scope, key, payer, refusal } = presented.verified;
    const identifier = identifierFor(payer);
    const other = await claims.find(scope, key);
    if (other) return this.known(other, request, identifier);
    if (refusal) throw refusal;
    if (identifier && (await claims.isIdentifierTaken(purchase.appId, identifier))) throw identifierReused();
    return { presented, identifier, fingerprint };
  }

  private known(claim: Claim, request: PayRequest, identifier: Buffer | undefined) {
    this.assertSame(claim, request, identifier);
    return { claim, identifier, fingerprint: claim.fingerprint };
  }

  /** Throws PAYMENT_REFUSED unless the claim is for the same request, and is worth something to it. */
  private assertSame(claim: Claim, { purchase }: PayRequest, identifier: Buffer | undefined): void {
    const isSame = claim.appId === purchase!.appId && claim.requestHash.equals(purchase!.requestHash);
    if (!isSame) throw alreadyUsed();
    if (claim.state === 'refused') throw refusedByNetwork(claim);
    if (purchase!.isUpfront) return this.assertUsable(claim);
    if (claim.state !== 'granted') return;
    const isRepeated = claim.identifier !== null && identifier?.equals(claim.identifier) === true;
    if (!isRepeated || claim.answer === null) throw alreadyUsed();
  }

  /** What an upfront payment has paid for is done under its ticket, so that its repetition does nothing more. */
  private assertUsable({ state, begunAt, settledAt }: Claim): void {
    // Older releases did not store when that was begun; where it was not, a payment that was noticed late still pays.
    const since = begunAt ?? (state === 'granted' ? settledAt : null);
    if (since && this.options.now().getTime() - since.getTime() > usableMs) throw alreadyUsed();
  }
}

/** As tasks show it. */
function statusOf({ state, sentAt, begunAt }: Claim): string {
  switch (state) {
    case 'claimed':
      return 'Pending';
    case 'settling':
      return sentAt ? 'PaymentConfirming' : 'PaymentBroadcast';
    case 'settled':
      return begunAt ? 'StoringData' : 'PaymentConfirmed';
    case 'granted':
      return 'Completed';
    case 'refused':
      return 'Failed';
  }
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

function purchaseOf(
  { offer, verified: _ }: PresentedPayment,
  fingerprint: Buffer,
  identifier: Buffer | undefined,
): ClaimedPurchase {
  const { method, request, quoteId, terms, amount } = offer;
  return {
    ...{ appId: request.appId, requestHash: request.requestHash, quoteId, amount, fingerprint },
    ...{ amountUtia: terms.amountUtia, appSharePpm: terms.appSharePpm },
    ...{ network: method.network, asset: method.asset, identifier: identifier ?? null },
  };
}

/** What a payment is worth to its request: the amount of its quote. */
const worthOf = ({ offer, isSent }: PresentedPayment, request: PayRequest): bigint =>
  isSent ? worthOfMoved(offer.terms.amountUtia, request) : offer.terms.amountUtia;

/** Where the price has grown since the money was moved, the payment is still worth what it was made for. */
function worthOfMoved(amountUtia: bigint, { purchase }: PayRequest): bigint {
  const asked = parseUtia(purchase!.amountUtia);
  return amountUtia > asked ? amountUtia : asked;
}

const settlementOf = (claim: Claim): Settlement =>
  message<Settlement>({ ticketId: claim.ticketId, payment: claim.settledAt ? settledPayment(claim) : undefined });

export function settledPayment({ network, transaction, payer, amount, blockHeight, settledAt }: Claim): SettledPayment {
  if (!transaction || !settledAt) throw unavailable('The payment is not settled yet');
  return {
    ...{ network, transaction: transaction.hash, payer, amount: amount.toString() },
    ...{ blockHeight: (blockHeight ?? 0n).toString(), confirmedAt: settledAt.toISOString() },
  };
}
