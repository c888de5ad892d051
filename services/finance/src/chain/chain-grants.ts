import { conflict, type ServiceError } from '@granary/shared/errors';
import type { Connection } from '@granary/shared/postgres/pool';

/** How much must be left of a grant on the chain, in the denomination, and until when. */
export interface Coverage {
  amount: bigint;
  until: Date;
}

/** A granter's grant to the broker, as `look` found it on the chain. */
export interface ChainGrant {
  /**
   * Makes the chain let the broker take as much, or throws GRANT_MISSING where only the granter can do that. Called in
   * the transaction that changes the grants here.
   */
  cover(tx: Connection, wanted: Coverage): Promise<void>;
}

/** The grants that users have given the broker on the chain. Errors of the chain are UNAVAILABLE. */
export interface ChainGrants {
  /** The address of the broker: the grantee. */
  readonly grantee: string;
  /**
   * Looks at what a granter has given, for sends to a recipient; undefined: to the hot wallet. It may take long, so no
   * transaction waits for it.
   */
  look(granter: string, recipient?: string): Promise<ChainGrant>;
  /**
   * Makes the chain let the broker take no more than that, where this service can; undefined: nothing. Called in the
   * transaction that changes the grants here.
   */
  reduce(tx: Connection, granter: string, wanted: Coverage | undefined): Promise<void>;
  /** How much the chain lets the broker send from a granter to a recipient now; undefined: any amount. */
  allowance(granter: string, recipient: string): Promise<bigint | undefined>;
  /** The money that a granter can send now, without the part that vesting locks. */
  spendable(granter: string): Promise<bigint>;
}

/** The chain has no grant that covers what is to be taken. */
export const grantMissing = (message: string): ServiceError => conflict('GRANT_MISSING', message);
