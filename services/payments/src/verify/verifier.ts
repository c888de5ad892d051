import { runSliced, type Task } from '@granary/shared/concurrency/time-slicing';
import type { JsonObject } from '@granary/shared/json/value';
import type { EvmAsset } from '../evm-assets';
import { readEnvelope, readExactPayment, type Envelope, type ExactPayment } from './envelope';
import { CosmosExact, type CosmosNetwork } from './cosmos-exact';
import { EvmExact } from './evm-exact';
import { Members } from './members';
import { caip2Of, version1NameOf } from './networks';
import { Refusal } from './refusal';
import { SolanaExact, type SolanaSettings } from './solana-exact';
import type { VerifiedPayment } from './verified-payment';

export interface VerifierSettings {
  evmAssets: readonly EvmAsset[];
  /** As far as they are known yet. */
  cosmosNetworks: () => readonly CosmosNetwork[];
  /** Absent: no payments on Solana are verified. */
  solana?: SolanaSettings;
  now: () => Date;
  /** The accounts that pay for settlements on EVM networks, by CAIP-2 names of networks or `eip155:*`. */
  evmSigners?: Readonly<Record<string, readonly string[]>>;
}

/** What is found about a payment, as the x402 specification writes it. */
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

/** Verifies x402 payments by what they contain, without a chain. It grants nothing, stores nothing and sees no replay. */
export class Verifier {
  private readonly evm: EvmExact;
  private readonly cosmos: CosmosExact;
  private readonly solana: SolanaExact;

  constructor(private readonly settings: VerifierSettings) {
    this.evm = new EvmExact(settings.evmAssets);
    this.cosmos = new CosmosExact((name) => settings.cosmosNetworks().find(({ network }) => network === name));
    this.solana = new SolanaExact(settings.solana ?? { assets: [], feePayers: [] });
  }

  /** A part at a time, so that others are served in between. Throws VALIDATION_FAILED for a body that is not well-formed. */
  verify(body: Buffer): Promise<Finding> {
    return runSliced(this.find(readEnvelope(body)));
  }

  /** The same for a payment that stands beside its requirements. Rejects with a Refusal. */
  verifyEnvelope(envelope: Envelope): Promise<{ payment: ExactPayment; verified: VerifiedPayment }> {
    return runSliced(this.check(envelope));
  }

  /** The quote that a payment of version 1 on a Cosmos chain or Solana names in its memo, where it can be read. */
  quoteInMemo(name: string, payload: JsonObject): string | undefined {
    const network = caip2Of(1, name);
    if (network === undefined) return undefined;
    const members = new Members(payload, 'paymentPayload.payload', 'invalid_payload');
    return this.solana.networks.has(network) ? this.solana.memoOf(members) : this.cosmos.memoOf(network, members);
  }

  /** What is verified on networks on which payments are settled, as `GET /x402/supported` lists it. */
  kinds(isSettled: (network: string) => boolean): object {
    const networks = [...this.cosmosNetworks(), ...this.evm.networks, ...this.solana.networks];
    const kinds = networks.filter(isSettled).flatMap((network) => {
      const name = version1NameOf(network);
      const extra = this.solana.networks.has(network) ? { extra: this.solana.extra } : {};
      const kind = { x402Version: 2, scheme: 'exact', network, ...extra };
      return name === undefined ? [kind] : [kind, { ...kind, x402Version: 1, network: name }];
    });
    return { kinds, extensions: [], signers: { ...this.settings.evmSigners, ...this.solana.signers } };
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
    const { network } = payment.requirement;
    const nowSeconds = BigInt(Math.floor(this.settings.now().getTime() / 1_000));
    if (this.evm.networks.has(network)) return { payment, verified: yield* this.evm.verify(payment, nowSeconds) };
    if (this.solana.networks.has(network)) {
      return { payment, verified: yield* this.solana.verify(payment, nowSeconds) };
    }
    if (this.cosmosNetworks().includes(network)) {
      return { payment, verified: yield* this.cosmos.verify(payment, nowSeconds) };
    }
    throw new Refusal('invalid_network', 'Payments on this network are not verified here');
  }

  private cosmosNetworks(): string[] {
    return this.settings.cosmosNetworks().map(({ network }) => network);
  }
}
