import { neverAborted } from '@granary/shared/concurrency/cancellation';
import { TtlCache } from '@granary/shared/concurrency/ttl-cache';
import { invalid } from '@granary/shared/errors';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import type { Call, Client } from '@granary/shared/rpc/types';

/** How old what an application has chosen may be: a change is seen by every gateway within a second. */
const ttlMs = 800;
const cacheSize = 10_000;

export interface PaymentNetworksClients {
  data: Pick<Client<DataDefinition>, 'getApplication'>;
  payments: Pick<Client<PaymentsDefinition>, 'listPaymentNetworks'>;
}

/** The networks on which applications take x402 payments. They are looked up only for what costs something. */
export class PaymentNetworks {
  private readonly chosen = new TtlCache<readonly string[]>({ max: cacheSize, ttlMs });

  constructor(private readonly clients: PaymentNetworksClients) {}

  /**
   * The networks of an application by their CAIP-2 names; empty: all that the operator offers. Rejects with
   * APP_NOT_FOUND.
   */
  async forApp(appId: string, call: Call): Promise<readonly string[]> {
    // Others share the look-up, so it does not end when the client that caused it disconnects.
    const shared = { ...call, signal: neverAborted };
    const find = async () => (await this.clients.data.getApplication({ appId }, shared)).paymentNetworks;
    return (await this.chosen.get(appId, find)) ?? [];
  }

  forget(appId: string): void {
    this.chosen.delete(appId);
  }

  /** The recipient of payments on the chain of the wallets; undefined where none are taken there. */
  async recipientOnWallets(call: Call): Promise<string | undefined> {
    const { networks } = await this.clients.payments.listPaymentNetworks({}, call);
    return networks.find(({ network }) => network.startsWith('cosmos:'))?.payTo;
  }

  /**
   * The CAIP-2 names of networks that a body names as either version of x402 does, each once. Throws VALIDATION_FAILED,
   * with those that are offered, for one that is not.
   */
  async parse(names: readonly string[], call: Call): Promise<string[]> {
    const { networks } = await this.clients.payments.listPaymentNetworks({}, call);
    const byName = new Map(
      networks.flatMap(({ network, version1Name }) => [
        [version1Name, network],
        [network, network],
      ]),
    );
    const unknown = names.filter((name) => !byName.has(name));
    if (unknown.length === 0) return [...new Set(names.map((name) => byName.get(name)!))];
    const offered = networks.map(({ network }) => network);
    throw invalid('A network is not offered here', {
      payment_networks: unknown.map((name) => `is not offered: ${name}`),
      ...(offered.length > 0 && { offered_networks: offered }),
    });
  }
}
