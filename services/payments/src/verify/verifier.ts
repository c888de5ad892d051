import { runSliced, type Task } from '@granary/shared/concurrency/time-slicing';
import type { EvmAsset } from '../evm-assets';
import { readEnvelope, readExactPayment, type Envelope } from './envelope';
import { EvmExact } from './evm-exact';
import { version1NameOf } from './networks';
import { Refusal } from './refusal';

export interface VerifierSettings {
  evmAssets: readonly EvmAsset[];
  now: () => Date;
}

/** What is found about a payment, as the x402 specification writes it. */
export type Finding =
  { isValid: true; payer: string } | { isValid: false; invalidReason: string; invalidMessage: string; payer?: string };

/** Verifies x402 payments by what they contain, without a chain. It grants nothing, stores nothing and sees no replay. */
export class Verifier {
  private readonly evm: EvmExact;

  constructor(private readonly settings: VerifierSettings) {
    this.evm = new EvmExact(settings.evmAssets);
  }

  /** A part at a time, so that others are served in between. Throws VALIDATION_FAILED for a body that is not well-formed. */
  verify(body: Buffer): Promise<Finding> {
    return runSliced(this.find(readEnvelope(body)));
  }

  /** What is verified, as `GET /x402/supported` lists it. */
  kinds(): object {
    const kinds = [...this.evm.networks].flatMap((network) => {
      const name = version1NameOf(network);
      const kind = { x402Version: 2, scheme: 'exact', network };
      return name === undefined ? [kind] : [kind, { ...kind, x402Version: 1, network: name }];
    });
    return { kinds, extensions: [], signers: {} };
  }

  private *find(envelope: Envelope): Task<Finding> {
    try {
      const payment = readExactPayment(envelope);
      if (!this.evm.networks.has(payment.requirement.network)) {
        throw new Refusal('invalid_network', 'Payments on this network are not verified here');
      }
      const nowSeconds = BigInt(Math.floor(this.settings.now().getTime() / 1_000));
      return { isValid: true, payer: yield* this.evm.verify(payment, nowSeconds) };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { reason: invalidReason, message: invalidMessage, payer } = error;
      return { isValid: false, invalidReason, invalidMessage, ...(payer !== undefined && { payer }) };
    }
  }
}
