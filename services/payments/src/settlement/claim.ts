import { sql } from '@granary/shared/postgres/sql';
import type { SettlementTransaction } from '../networks/settlement-network';

/**
 * `claimed`: nothing was sent. `settling`: the transaction is stored, and may have been sent; a block may have it, and
 * what it pays for may have been given already. `settled`: the money was moved, and as many blocks follow as the
 * network asks for. `granted`: and what it pays for was given. `refused`: it can never be moved.
 */
export type ClaimState = 'claimed' | 'settling' | 'settled' | 'granted' | 'refused';

/** The purchase that a payment is presented for. */
export interface ClaimedPurchase {
  /** Null: requirements of somebody else. */
  appId: string | null;
  requestHash: Buffer;
  quoteId: string | null;
  amountUtia: bigint;
  appSharePpm: number;
  /** CAIP-2. */
  network: string;
  asset: string;
  /** The amount in units of the asset. */
  amount: bigint;
  fingerprint: Buffer;
  identifier: Buffer | null;
}

/** A payment that was presented, and how far it is. */
export interface Claim extends ClaimedPurchase {
  id: string;
  ticketId: string;
  scope: string;
  key: string;
  payer: string;
  proof: object;
  validUntil: Date;
  state: ClaimState;
  transaction: SettlementTransaction | null;
  /** The time at which the network had taken the transaction, not included yet; null if it was included at once. */
  sentAt: Date | null;
  /** The block with the transfer, as far as is known now: its time, the hash of the transaction, and its height. */
  includedAt: Date | null;
  includedHash: string | null;
  blockHeight: bigint | null;
  settledAt: Date | null;
  /** The time at which its transaction was found to be included without moving anything. */
  failedAt: Date | null;
  /** The time at which the payment was redeemed, which happens once: for the request that it pays for. */
  redeemedAt: Date | null;
  refusedBecause: string | null;
  /** The time at which the work that an upfront payment pays for was begun. */
  begunAt: Date | null;
  answer: Buffer | null;
  createdAt: Date;
  updatedAt: Date;
}

export interface TakenClaim {
  claim: Claim;
  /** It was stored by this call, and this process owns it. */
  isNew?: boolean;
}

/** The block that has a transfer. */
export interface Inclusion {
  hash: string;
  height: bigint;
  at: Date;
}

/** Whether a block has the transfer of a payment, so that what it pays for may be given. */
export const isMoved = ({ includedAt, settledAt }: Claim): boolean => includedAt !== null || settledAt !== null;

/** Names the transaction whose block has the transfer. Older releases stored it as that of the claim. */
export const transferHashOf = ({ includedHash, transaction }: Claim): string => includedHash ?? transaction!.hash;

/** Whether nothing that its network does changes it any more. */
export const isEnded = ({ state }: Claim): boolean => state !== 'claimed' && state !== 'settling';

/**
 * Why a payment has no claim: its payer has as many under way as may be, or its quote or identifier belongs to another
 * one.
 */
export type ClaimConflict = 'payer_busy' | 'identifier_used' | 'quote_used';

/** Payments on a network. */
export interface NetworkCount {
  /** CAIP-2. */
  network: string;
  count: bigint;
}

/** A claim as its row is read. */
export type ClaimRow = Omit<Claim, 'transaction' | 'amount' | 'proof'> & {
  amount: string;
  proof: string;
  bytes: Buffer | null;
  hash: string | null;
};

/** The columns of a claim, named as the members of `ClaimRow`. */
export const columns = sql`id, ticket_id as "ticketId", scope, key, app_id as "appId", request_hash as "requestHash",
  quote_id as "quoteId", amount_utia as "amountUtia", app_share_ppm as "appSharePpm", network, asset,
  amount::text as amount, payer, proof, valid_until as "validUntil", state, transaction_bytes as bytes, transaction_hash as hash,
  sent_at as "sentAt", begun_at as "begunAt", included_at as "includedAt", included_hash as "includedHash",
  block_height as "blockHeight", failed_at as "failedAt", settled_at as "settledAt", granted_at as "redeemedAt",
  refused_because as "refusedBecause", fingerprint, identifier, answer,
  created_at as "createdAt", updated_at as "updatedAt"`;

export const toClaim = ({ bytes, hash, amount, proof, ...claim }: ClaimRow): Claim => ({
  ...claim,
  amount: BigInt(amount),
  proof: JSON.parse(proof) as object,
  transaction: bytes && hash !== null ? { bytes, hash } : null,
});
