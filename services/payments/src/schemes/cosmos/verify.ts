import { createHash } from 'node:crypto';
import type { Task } from '@granary/shared/concurrency/time-slicing';
import {
  readTransaction,
  TransactionRefused,
  verifySignature,
  type UnverifiedTransfer,
} from '@granary/shared/money/cosmos/read-transaction';
import type { ExactPayment, Requirement } from '../../verify/envelope';
import type { ExactVerifier } from '../../verify/exact-verifier';
import type { Members } from '../../verify/members';
import { Refusal } from '../../verify/refusal';
import type { VerifiedPayment } from '../../verify/verified-payment';

/** A Cosmos chain on which payments are verified. */
export interface CosmosNetwork {
  /** CAIP-2, for example `cosmos:celestia`. */
  network: string;
  /** The prefix of all addresses, for example `celestia`. */
  prefix: string;
  /** The unit of amounts and fees, for example `utia`. */
  denom: string;
  memoBytesMax: number;
}

/** A signed transaction, in texts: what nodes take. */
export interface CosmosProof {
  /** The transaction in base64. */
  bytes: string;
  sender: string;
  sequence: string;
  timeoutHeight: string;
}

const transactionBytesMax = 4_096;
const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const uint64Max = 2n ** 64n - 1n;
/** How long a payment is kept from being presented again: longer than any quote, which its memo names. */
const keptSeconds = 86_400;

/**
 * Verifies payments by signed transactions of the Cosmos SDK (SIGN_MODE_DIRECT) with one MsgSend, without the chain.
 * What only the chain has is claimed by the payment: the signature covers the number of the account, so a wrong claim
 * is not valid.
 */
export class CosmosExact implements ExactVerifier {
  readonly signers = {};

  /** @param chains The chains that are known so far. */
  constructor(private readonly chains: () => readonly CosmosNetwork[]) {}

  networks(): string[] {
    return this.chains().map(({ network }) => network);
  }

  verifies(network: string): boolean {
    return this.networkOf(network) !== undefined;
  }

  *verify({ requirement, payload }: ExactPayment, nowSeconds: bigint): Task<VerifiedPayment> {
    const network = this.networkOf(requirement.network)!;
    const bytes = readBytes(payload);
    const accountNumber = payload.whole('accountNumber');
    if (accountNumber > uint64Max) payload.refuse('accountNumber', 'must have at most 64 bits');
    const unverified = decode(bytes, network);
    const { sender, sequence, timeoutHeight } = unverified.transfer;
    try {
      checkTerms(unverified, requirement);
      yield;
      checkSignature(unverified, accountNumber);
    } catch (error) {
      if (error instanceof Refusal) error.payer = sender;
      throw error;
    }
    const proof: CosmosProof = {
      bytes: bytes.toString('base64'),
      sender,
      sequence: sequence.toString(),
      timeoutHeight: timeoutHeight.toString(),
    };
    return {
      payer: sender,
      scope: network.network,
      key: `${sender}|${sequence}`,
      proof,
      validUntilSeconds: Number(nowSeconds) + keptSeconds,
    };
  }

  memoOf(networkName: string, payload: Members): string | undefined {
    const network = this.networkOf(networkName);
    try {
      return network && decode(readBytes(payload), network).transfer.memo;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return undefined;
    }
  }

  private networkOf(name: string): CosmosNetwork | undefined {
    return this.chains().find(({ network }) => network === name);
  }
}

/** The transaction is in `signedTx`, or in `transaction` as others name it. */
function readBytes(payload: Members): Buffer {
  const names = ['signedTx', 'transaction'].filter((name) => payload.has(name));
  if (names.length === 0 && payload.has('txHash')) {
    throw new Refusal(
      'invalid_payload',
      'A transaction that was sent already cannot be verified by what it contains: that takes the chain',
    );
  }
  const [name = 'signedTx', other] = names;
  if (other !== undefined) payload.refuse(other, 'cannot stand beside signedTx');
  const text = payload.text(name);
  const lengthMax = Math.ceil(transactionBytesMax / 3) * 4;
  if (text.length > lengthMax || !base64.test(text)) {
    payload.refuse(name, `must be base64 of at most ${transactionBytesMax} bytes`);
  }
  return Buffer.from(text, 'base64');
}

function decode(bytes: Buffer, { network, prefix, memoBytesMax }: CosmosNetwork): UnverifiedTransfer {
  return refusing('invalid_exact_cosmos_payload_transaction', () =>
    readTransaction(bytes, { prefix, chainId: network.slice('cosmos:'.length), memoBytesMax }),
  );
}

function checkTerms({ transfer }: UnverifiedTransfer, { asset, payTo, amount, extra }: Requirement): void {
  const { outputs, denom, sender, memo } = transfer;
  const [output, ...others] = outputs;
  const refuse = (reason: 'recipient' | 'amount' | 'memo', message: string) => {
    throw new Refusal(`invalid_exact_cosmos_payload_${reason}_mismatch`, message);
  };
  if (others.length > 0 || output.address !== payTo) refuse('recipient', 'The one recipient must be payTo');
  if (sender === payTo) throw new Refusal('invalid_payload', 'The payer is the recipient');
  if (denom !== asset) refuse('amount', 'The transfer must be in the asset that is required');
  if (output.amount !== amount) refuse('amount', 'The amount must be exactly the one that is required');
  const quoteId = extra.optionalText('quoteId');
  // The memo is the only part of the transaction that says what it pays for.
  if (quoteId !== undefined && memo !== quoteId) refuse('memo', 'The memo must be extra.quoteId');
}

function checkSignature(unverified: UnverifiedTransfer, accountNumber: bigint): void {
  refusing('invalid_exact_cosmos_payload_signature', () => verifySignature(unverified, accountNumber));
}

/** Texts of the reader contain nothing of the request. */
function refusing<T>(reason: Refusal['reason'], read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof TransactionRefused) throw new Refusal(reason, error.message);
    throw error;
  }
}

/** The hash by which nodes find a transaction: SHA-256 in upper-case hexadecimal digits. */
export const transactionHashOf = (bytes: Uint8Array): string =>
  createHash('sha256').update(bytes).digest('hex').toUpperCase();
