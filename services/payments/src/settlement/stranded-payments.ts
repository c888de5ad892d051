import type { SettlementNetwork } from '../networks/settlement-network';
import type { Claims } from './claims';

export interface StrandedPaymentsOptions {
  claims: Pick<Claims, 'unsettledElsewhere'>;
  networks: ReadonlyMap<string, SettlementNetwork>;
  /** Whether these are all networks of the configuration: that of the wallets becomes known after the start. */
  areKnown: () => boolean;
}

/**
 * Counts the payments that may have been sent on networks that are not in the configuration any more, by network, for a
 * person. Nothing settles them until the operator configures their network again. Empty: there are none.
 */
export async function strandedPayments({ claims, networks, areKnown }: StrandedPaymentsOptions): Promise<string> {
  if (!areKnown()) return '';
  const stranded = await claims.unsettledElsewhere([...networks.keys()]);
  return stranded.map(({ network, count }) => `${count} on ${network}`).join(', ');
}
