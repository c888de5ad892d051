import { Backoff } from '@granary/shared/concurrency/backoff';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import { Semaphore } from '@granary/shared/concurrency/semaphore';
import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import type { FoundTransaction } from '@granary/shared/gen/granary/finance/v1/FoundTransaction';
import type { IncludedTransfer } from '@granary/shared/gen/granary/finance/v1/IncludedTransfer';
import { newDocumentId } from '@granary/shared/ids';
import { newCall, type Client } from '@granary/shared/rpc/types';
import type { PaidQuote } from '../../networks/quoted-network';
import { refused } from '../../payment-refused';
import type { ExactPayment, Requirement } from '../../verify/envelope';
import type { Members } from '../../verify/members';
import { Refusal } from '../../verify/refusal';
import type { VerifiedPayment } from '../../verify/verified-payment';

/** A transaction that the payer has sent. */
export interface SentProof {
  /** SHA-256 in upper-case hexadecimal digits. */
  hash: string;
}

export const isSentProof = (proof: object): proof is SentProof => 'hash' in proof;

const timeoutMs = 10_000;
/** The pause between two looks for a transaction that no block has yet. */
const lookBackoff = { firstMs: 200, maxMs: 1_000 };
/** Requests that wait for a block; others look once. */
const waitingMax = 50;
/** The time of a block may be later than that of its transactions. */
const blockSeconds = 60;
/** How long after its quote has expired a transaction may be named that was included in time. */
const namedSeconds = 86_400;

export interface SentTransactionsOptions {
  /** CAIP-2. */
  network: string;
  chain: () => Pick<Client<ChainDefinition>, 'findTransaction'>;
  now: () => Date;
  /** How long a request waits for the block of its transaction. */
  waitMs: number;
}

/**
 * Verifies payments that name a transaction by its hash (`{txHash, sender}`), which the payer has sent by himself, by
 * looking for it on the chain. Anybody can read hashes there, so a transaction counts for the quote in its memo only.
 * How it was signed, and what else it does, is the chain's concern.
 */
export class SentTransactions {
  private readonly waiting = new Semaphore(waitingMax);

  constructor(private readonly options: SentTransactionsOptions) {}

  /** Throws a Refusal; PAYMENT_REFUSED with transaction_not_found, invalid_transaction_state or quote_expired. */
  async verify({ requirement, payload }: ExactPayment, quote: PaidQuote): Promise<VerifiedPayment> {
    const { network, now } = this.options;
    const hash = hashIn(payload);
    const nameableUntil = quote.expiresAtSeconds + namedSeconds;
    if (now().getTime() / 1_000 > nameableUntil) throw refused('quote_expired', 'The quote has expired a day ago');
    const transaction = await this.find(hash);
    if (!transaction.isIncluded) {
      throw refused('transaction_not_found', 'No block has the transaction yet: the same request can be sent again');
    }
    if (transaction.code !== 0) throw refused('invalid_transaction_state', 'The transaction failed on the chain');
    const { sender, atMs } = transferFor(transaction, requirement, quote.id);
    const named = payload.optionalText('sender');
    if (named !== undefined && named !== '' && named !== sender)
      payload.refuse('sender', 'has not sent the transaction');
    if (Number(atMs) / 1_000 > quote.expiresAtSeconds + blockSeconds) {
      throw refused('quote_expired', 'The transaction was included after its quote had expired');
    }
    const proof: SentProof = { hash };
    return { payer: sender, scope: network, key: `tx|${hash}`, validUntilSeconds: nameableUntil + blockSeconds, proof };
  }

  /**
   * Looks for a transaction until a block has it, for `waitMs` at most. Looks only once while `waitingMax` requests
   * already wait.
   */
  private async find(hash: string): Promise<FoundTransaction> {
    const { chain, waitMs } = this.options;
    const look = () => chain().findTransaction({ hash }, newCall(newDocumentId(), timeoutMs));
    let transaction = await look();
    if (transaction.isIncluded || !this.waiting.tryAcquire()) return transaction;
    try {
      const backoff = new Backoff(lookBackoff);
      const untilMs = performance.now() + waitMs;
      while (!transaction.isIncluded && performance.now() < untilMs) {
        await backoff.wait(new Cancellation());
        transaction = await look();
      }
      return transaction;
    } finally {
      this.waiting.release();
    }
  }
}

function hashIn(payload: Members): string {
  for (const other of ['signedTx', 'transaction']) {
    if (payload.has(other)) payload.refuse(other, 'cannot stand beside txHash');
  }
  const text = payload.text('txHash');
  if (!/^[0-9a-f]{64}$/i.test(text)) payload.refuse('txHash', 'must have 64 hexadecimal digits');
  return text.toUpperCase();
}

/** The transfer that pays what is required. Throws a Refusal that names what differs where one comes close. */
function transferFor({ transfers }: FoundTransaction, required: Requirement, quoteId: string): IncludedTransfer {
  const refuse = (reason: 'recipient' | 'amount' | 'memo', message: string): never => {
    throw new Refusal(`invalid_exact_cosmos_payload_${reason}_mismatch`, message);
  };
  const received = transfers.filter(({ recipient }) => recipient === required.payTo);
  if (received.length === 0) return refuse('recipient', 'The transaction does not pay payTo');
  const quoted = received.filter(({ memo }) => memo === quoteId);
  if (quoted.length === 0) return refuse('memo', 'The memo must be extra.quoteId');
  const exact = quoted.find(({ amount }) => BigInt(amount) === required.amount);
  return exact ?? refuse('amount', 'The amount must be exactly the one that is required');
}
