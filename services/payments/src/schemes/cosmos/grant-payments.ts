import { createHash } from 'node:crypto';
import type { ServiceError } from '@granary/shared/errors';
import { newDocumentId } from '@granary/shared/ids';
import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import { newCall, type Client } from '@granary/shared/rpc/types';
import type { FindResult, SendResult } from '../../networks/settlement-network';
import { refused } from '../../payment-refused';
import type { PaidQuote } from '../../networks/quoted-network';
import type { ExactPayment } from '../../verify/envelope';
import type { Members } from '../../verify/members';
import type { VerifiedPayment } from '../../verify/verified-payment';

/** The deduction that is made under a grant. It holds no key. */
export interface GrantProof {
  grantId: string;
  deductionId: string;
  amount: string;
  recipient: string;
  appId: string;
  operation: string;
  collection: string;
}

export const isGrantProof = (proof: object): proof is GrantProof => 'deductionId' in proof;

export type GrantClient = Pick<Client<ChainDefinition>, 'findGrant' | 'deduct' | 'findDeduction'>;

const timeoutMs = 10_000;
/** How long a deduction is kept from being asked for again. */
const keptSeconds = 86_400;
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const userKeyPattern = /^user_[\w-]{43}$/;

const call = () => newCall(newDocumentId(), timeoutMs);

/**
 * Payments by the key of a grant (`{userKey, deductionId, operation, collection}`): the money is taken from the wallet
 * of the user by a transaction of the broker. Nothing of the payment is a signature; the key is the proof, so it stands
 * in the header of one request and is not stored.
 */
export class GrantPayments {
  constructor(
    private readonly network: string,
    private readonly chain: () => GrantClient,
    private readonly now: () => Date,
    /** The least that is taken: a deduction costs the broker fees. */
    private readonly minUtia: bigint,
  ) {}

  /**
   * Throws a Refusal, or PAYMENT_REFUSED with user_key_invalid. Refuses what was not taken before with
   * amount_below_minimum, grant_revoked, grant_expired, target_not_allowed and allowance_spent: of what was, the
   * deduction itself may have spent the allowance.
   */
  async verify({ requirement, payload }: ExactPayment, quote: PaidQuote): Promise<VerifiedPayment> {
    const userKey = payload.text('userKey');
    const deductionId = payload.text('deductionId');
    if (!uuid.test(deductionId)) payload.refuse('deductionId', 'must be a UUID');
    if (!userKeyPattern.test(userKey)) throw invalidKey();
    const keyHash = createHash('sha256').update(userKey).digest();
    const { grant } = await this.chain().findGrant({ keyHash }, call());
    if (!grant) throw invalidKey();
    const appId = requirement.extra.optionalText('app') ?? '';
    const { grantId, address } = grant;
    const proof: GrantProof = {
      grantId,
      deductionId: idFor(grantId, deductionId, quote.id),
      amount: requirement.amount.toString(),
      recipient: requirement.payTo,
      appId,
      operation: labelIn(payload, 'operation'),
      collection: labelIn(payload, 'collection'),
    };
    return {
      payer: address,
      scope: this.network,
      key: `grant|${grantId}|${deductionId}`,
      proof,
      validUntilSeconds: Math.floor(this.now().getTime() / 1_000) + keptSeconds,
      refusal: this.refusalOf(grant, appId, requirement.amount),
    };
  }

  /**
   * Finds a refusal before anything is deducted. Finance refuses the deduction for the same reasons, but does not know
   * the minimum.
   */
  private refusalOf(
    grant: { revokedAt?: string; expiresAt: string; allowedApps: string[]; limitUtia: string; spentUtia: string },
    appId: string,
    amount: bigint,
  ): ServiceError | undefined {
    if (amount < this.minUtia)
      return refused('amount_below_minimum', `Grants pay what costs ${this.minUtia} utia or more`);
    if (grant.revokedAt !== undefined) return refused('grant_revoked', messages.grant_revoked);
    if (Date.parse(grant.expiresAt) <= this.now().getTime()) return refused('grant_expired', messages.grant_expired);
    const isAllowed = grant.allowedApps.length === 0 || grant.allowedApps.includes(appId);
    if (!isAllowed) return refused('target_not_allowed', messages.target_not_allowed);
    const isSpent = BigInt(grant.limitUtia) - BigInt(grant.spentUtia) < amount;
    return isSpent ? refused('allowance_spent', messages.allowance_spent) : undefined;
  }

  async send({
    deductionId,
    grantId,
    amount,
    recipient,
    appId,
    operation,
    collection,
  }: GrantProof): Promise<SendResult> {
    const { refusedBecause: reason } = await this.chain().deduct(
      { deductionId, grantId, amountUtia: amount, recipient, appId, operationType: operation, collection },
      call(),
    );
    if (reason === '') return { state: 'sent' };
    return { state: 'refused', reason, message: messages[reason as keyof typeof messages] ?? reason };
  }

  async find({ deductionId }: GrantProof): Promise<FindResult> {
    const { state, hash, height, reason, atMs } = await this.chain().findDeduction({ deductionId }, call());
    if (state === 'confirmed') {
      return { state: 'included', isFinal: true, hash, height: BigInt(height), at: new Date(Number(atMs)) };
    }
    if (state === 'failed') return { state: 'impossible', reason, message: 'The chain refused the deduction' };
    return { state: 'absent' };
  }
}

/**
 * A deduction belongs to its grant, whatever id a payment of another one names, and to the quote that it was first
 * presented for: once its claim is forgotten, the same id takes money again.
 */
const idFor = (...parts: [grantId: string, deductionId: string, quoteId: string]): string =>
  createHash('sha256')
    .update(JSON.stringify(parts))
    .digest('hex')
    .replace(/^(.{8})(.{4})(.{4})(.{4})(.{12}).*$/, '$1-$2-$3-$4-$5');

const invalidKey = () => refused('user_key_invalid', 'X-User-Key is not the key of a grant');

const messages = {
  grant_revoked: 'The grant was revoked',
  grant_expired: 'The grant has expired',
  target_not_allowed: 'The grant is not for this application',
  allowance_spent: 'Less is left of the grant than this costs',
  wallet_refused: 'The chain has refused a deduction from the wallet within the last hour',
  deduction_taken: 'The deduction was for something else',
} as const;

/**
 * A label of a deduction that the histories show. It has no control characters and no halves of surrogate pairs,
 * because Postgres cannot store all of them.
 */
function labelIn(payload: Members, name: string): string {
  const text = payload.optionalText(name) ?? '';
  return /^[^\p{Cc}\p{Cs}]{0,200}$/u.test(text)
    ? text
    : payload.refuse(name, 'must be a text of at most 200 characters');
}
