import { Semaphore } from '@granary/shared/concurrency/semaphore';
import { within } from '@granary/shared/concurrency/within';
import { ServiceError } from '@granary/shared/errors';
import type { PresentedSettings } from '../quotes/presented-payment';
import type { PaymentProblem, QuotedNetwork, UnsentPayment } from '../networks/quoted-network';
import { readEnvelope, type Envelope } from '../verify/envelope';
import { Refusal } from '../verify/refusal';
import { invalidFinding, type Finding } from '../verify/verifier';
import type { Claim } from './claim';
import type { Claims } from './claims';
import { othersHashOf } from './facilitator';

/** How long a network is asked at most: official clients wait for five seconds. */
const answerMs = 3_000;
/** Payments about which networks are asked at a time: anybody may ask, with any number of new keys. */
const looksMax = 50;

export interface VerificationOptions {
  presented: PresentedSettings;
  claims: Pick<Claims, 'find'>;
}

/**
 * Says whether payments could be settled: by what they contain, by what was settled here, and, on networks on which
 * payments are settled here, by what the network says. Nothing is stored or sent.
 */
export class PaymentVerification {
  private readonly looks = new Semaphore(looksMax);

  constructor(private readonly options: VerificationOptions) {}

  /** Throws VALIDATION_FAILED for a body that is not well-formed. */
  async verify(body: Buffer): Promise<Finding> {
    const { presented, claims } = this.options;
    const envelope = readEnvelope(body);
    try {
      const { payment, verified } = await presented.verifier.verifyEnvelope(envelope);
      const { network: name, amount } = payment.requirement;
      const { payer, proof, scope, key } = verified;
      const network = presented.offers.networks.get(name);
      if (!network) return { isValid: true, payer };
      const claim = await claims.find(scope, key);
      const problem = claim ? problemWith(claim, envelope) : await this.problemOn(network, { payer, proof, amount });
      return problem ? invalidFinding({ ...problem, payer }) : { isValid: true, payer };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return invalidFinding(error);
    }
  }

  /** A payment that cannot be settled now is not valid: whoever accepted it might never be paid. */
  private async problemOn(network: QuotedNetwork, payment: UnsentPayment): Promise<PaymentProblem | undefined> {
    if (!network.isOpen() || !this.looks.tryAcquire()) return unknown;
    const answer = await within(answerMs, this.look(network, payment));
    return answer ? answer.problem : unknown;
  }

  /** Undefined: the network cannot be asked. */
  private async look(
    network: QuotedNetwork,
    payment: UnsentPayment,
  ): Promise<{ problem: PaymentProblem | undefined } | undefined> {
    try {
      return { problem: await network.findProblem?.(payment) };
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'UNAVAILABLE') return undefined;
      throw error;
    } finally {
      this.looks.release();
    }
  }
}

/**
 * The problem with a payment that was presented here before. There is none while it has paid for nothing and comes with
 * the requirement that it was presented for: `settle` refuses it for another one.
 */
const problemWith = (claim: Claim, envelope: Envelope): PaymentProblem | undefined =>
  claim.redeemedAt || !wasPresentedFor(claim, envelope) ? used : undefined;

function wasPresentedFor({ appId, requestHash }: Claim, envelope: Envelope): boolean {
  if (appId === null) return requestHash.equals(othersHashOf(envelope));
  const extra = envelope.requirement.get('extra');
  if (!(extra instanceof Map)) return false;
  return extra.get('app') === appId && extra.get('request') === requestHash.toString('base64url');
}

const used: PaymentProblem = { reason: 'payment_already_used', message: 'The payment has paid for something before' };

const unknown: PaymentProblem = {
  reason: 'settlement_unavailable',
  message: 'Payments on this network are not settled at the moment, so it cannot be said whether this one could be',
};
