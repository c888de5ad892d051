import { runSliced, type Task } from '@granary/shared/concurrency/time-slicing';
import type { JsonObject } from '@granary/shared/json/value';
import { readEnvelope, readExactPayment, type Envelope, type ExactPayment } from './envelope';
import type { ExactVerifier } from './exact-verifier';
import { Members } from './members';
import { Refusal } from './refusal';
import type { VerifiedPayment } from './verified-payment';
import { caip2Of, version1NameOf } from './version1-names';

/** The outcome of verifying a payment, as the x402 specification writes it. */
export type Finding =
  { isValid: true; payer: string } | { isValid: false; invalidReason: string; invalidMessage: string; payer?: string };

export const invalidFinding = ({
  reason,
  message,
  payer,
}: Pick<Refusal, 'message' | 'payer'> & { reason: string }): Finding => ({
  isValid: false,
  invalidReason: reason,
  invalidMessage: message,
  ...(payer !== undefined && { payer }),
});

/**
 * Verifies x402 payments by what they contain, without a chain. It grants nothing, stores nothing and sees no replay.
 */
export class Verifier {
  /** @param schemes Of two that verify on the same network, the first one does. */
  constructor(
    private readonly schemes: readonly ExactVerifier[],
    private readonly now: () => Date,
  ) {}

  /**
   * Verifies the payment in a body in slices, so that other requests are served in between. Throws MALFORMED_JSON and
   * VALIDATION_FAILED for a body that is not well-formed.
   */
  verify(body: Buffer): Promise<Finding> {
    return runSliced(this.find(readEnvelope(body)));
  }

  /** Verifies a payment with its requirement, also in slices. Rejects with a Refusal. */
  verifyEnvelope(envelope: Envelope): Promise<{ payment: ExactPayment; verified: VerifiedPayment }> {
    return runSliced(this.check(envelope));
  }

  /** The quote that a payment of version 1 names in the memo of its transaction, where it can be read. */
  quoteInMemo(name: string, payload: JsonObject): string | undefined {
    const network = caip2Of(1, name);
    if (network === undefined) return undefined;
    const members = new Members(payload, 'paymentPayload.payload', 'invalid_payload');
    return this.schemeOf(network)?.memoOf?.(network, members);
  }

  /** The answer of `GET /x402/supported`: the kinds that are verified on networks where payments are settled. */
  kinds(isSettled: (network: string) => boolean): object {
    const kinds = this.schemes.flatMap((scheme) =>
      [...scheme.networks()].filter(isSettled).flatMap((network) => kindsOn(network, scheme.extra)),
    );
    const signers = Object.fromEntries(this.schemes.flatMap((scheme) => Object.entries(scheme.signers)));
    return { kinds, extensions: [], signers };
  }

  private *find(envelope: Envelope): Task<Finding> {
    try {
      const { verified } = yield* this.check(envelope);
      return { isValid: true, payer: verified.payer };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return invalidFinding(error);
    }
  }

  private *check(envelope: Envelope): Task<{ payment: ExactPayment; verified: VerifiedPayment }> {
    const payment = readExactPayment(envelope);
    const scheme = this.schemeOf(payment.requirement.network);
    if (!scheme) throw new Refusal('invalid_network', 'Payments on this network are not verified here');
    const nowSeconds = BigInt(Math.floor(this.now().getTime() / 1_000));
    return { payment, verified: yield* scheme.verify(payment, nowSeconds) };
  }

  private schemeOf(network: string): ExactVerifier | undefined {
    return this.schemes.find((scheme) => scheme.verifies(network));
  }
}

/** A network, as each version of x402 that has a name for it lists it. */
function kindsOn(network: string, extra: object | undefined): object[] {
  const kind = { x402Version: 2, scheme: 'exact', network, ...(extra && { extra }) };
  const name = version1NameOf(network);
  return name === undefined ? [kind] : [kind, { ...kind, x402Version: 1, network: name }];
}
