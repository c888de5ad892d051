import { Backoff } from '@granary/shared/concurrency/backoff';
import { TtlCache } from '@granary/shared/concurrency/ttl-cache';
import { newDocumentId } from '@granary/shared/ids';
import type { Logger } from '@granary/shared/logger';
import type { BroadcastTransactionResponse } from '@granary/shared/gen/granary/finance/v1/BroadcastTransactionResponse';
import type { ChainAccount } from '@granary/shared/gen/granary/finance/v1/ChainAccount';
import type { ChainDefinition } from '@granary/shared/gen/granary/finance/v1/Chain';
import { sdkCodes, sdkCodespace } from '@granary/shared/money/cosmos/read-transaction';
import { newCall, type Client } from '@granary/shared/rpc/types';
import type {
  FindResult,
  Plan,
  SendResult,
  Settled,
  SettlementNetwork,
  SettlementTransaction,
} from '../../networks/settlement-network';
import type { PaidQuote, PaymentProblem, UnsentPayment } from '../../networks/quoted-network';
import { transactionHashOf, type CosmosProof } from './verify';
import type { ExactPayment } from '../../verify/envelope';
import type { VerifiedPayment } from '../../verify/verified-payment';
import { isGrantProof, type GrantClient, type GrantPayments } from './grant-payments';
import { isSentProof, type SentTransactions } from './sent-transactions';

const timeoutMs = 10_000;
const watchTimeoutMs = 5_000;
/** Looks without an answer, in a row, after which the network is closed: one may have been slow. */
const missedLooksMax = 2;
/** A node that has not indexed its latest blocks is waited for this long, in blocks. */
const indexLagMax = 20n;
/**
 * A transaction that nodes refuse which may have had it before is waited for this long, in blocks: no mempool keeps one
 * so long that could not be included.
 */
const refusedBlocks = 100n;
/**
 * How often a transaction is sent again, within some two seconds, while nodes lack those of the payer with earlier
 * sequences: requests that are sent in parallel arrive in any order.
 */
const gapRetriesMax = 20;
const gapDelays = { firstMs: 100, maxMs: 200 };
/** Transactions whose absence is remembered, and for how long. */
const absences = { max: 10_000, ttlMs: 86_400_000 };

interface Refusal {
  reason: string;
  message: string;
  since?: bigint | undefined;
}

export type ChainClient = GrantClient &
  Pick<Client<ChainDefinition>, 'broadcastTransaction' | 'findTransaction' | 'getAccount'>;

/**
 * Settles payments on the chain of the wallets: the payer has signed the transaction and pays its fee, so it is sent as
 * it is. It can no longer be included when its sequence is used by another transaction, or its timeout height is over.
 */
export class CosmosSettlement implements SettlementNetwork {
  /** The first height at which a transaction was absent and could no longer be included, by its hash. */
  private readonly absences = new TtlCache<bigint>(absences);
  /**
   * Why nodes refuse a transaction that other nodes may have, and the height at which it was first absent, by its hash.
   * The entry is removed once a node takes the transaction or a block has it.
   */
  private readonly refusals = new TtlCache<Refusal>(absences);
  private canAsk = true;
  private missedLooks = 0;

  constructor(
    readonly id: string,
    private readonly chain: () => ChainClient,
    private readonly now: () => Date,
    private readonly sent: SentTransactions,
    private readonly grants: GrantPayments,
  ) {}

  isOpen(): boolean {
    return this.canAsk;
  }

  /**
   * Closes the network once no node of it has answered about `address` twice in a row, or finance has not. Never
   * rejects.
   */
  async watch(address: string, log: Logger): Promise<void> {
    const before = this.canAsk;
    const answers = await this.chain()
      .getAccount({ address, withBalance: false }, newCall(newDocumentId(), watchTimeoutMs))
      .then(
        () => true,
        () => false,
      );
    this.missedLooks = answers ? 0 : this.missedLooks + 1;
    this.canAsk = this.missedLooks < missedLooksMax;
    if (this.canAsk === before) return;
    log.info({ network: this.id, state: this.canAsk ? 'open' : 'no node' }, 'a network of x402 is open or closed');
  }

  verifySent(payment: ExactPayment, quote: PaidQuote): Promise<VerifiedPayment> {
    return this.sent.verify(payment, quote);
  }

  verifyKey(payment: ExactPayment, quote: PaidQuote): Promise<VerifiedPayment> {
    return this.grants.verify(payment, quote);
  }

  async plan({ proof, quoteId }: Settled): Promise<Plan> {
    // The transaction of a grant is signed by finance, once it is asked for.
    if (isGrantProof(proof)) return ready(Buffer.alloc(0), proof.deductionId);
    if (isSentProof(proof)) return ready(Buffer.alloc(0), proof.hash);
    const { bytes: encoded, sender, sequence } = proof as CosmosProof;
    // Without a quote of this service, a payment may stay valid forever. An earlier claim, since forgotten, may have
    // settled it.
    if (quoteId === null && (await this.isSequenceUsed(sender, sequence))) return sequenceUsed;
    const bytes = Buffer.from(encoded, 'base64');
    return ready(bytes, transactionHashOf(bytes));
  }

  async findProblem({ proof, amount }: UnsentPayment): Promise<PaymentProblem | undefined> {
    const { sender, sequence, timeoutHeight } = proof as CosmosProof;
    const account = await this.chain().getAccount({ address: sender, withBalance: true }, call());
    const { exists, balance } = account;
    // Finance of the release before does not say the balance.
    if (!exists || (balance !== undefined && BigInt(balance) < amount)) return insufficientFunds;
    if (BigInt(account.sequence) > BigInt(sequence)) return sequenceUsed;
    return problemOf(account, BigInt(sequence), BigInt(timeoutHeight));
  }

  async send({ proof }: Settled, { bytes, hash }: SettlementTransaction, isFirst: boolean): Promise<SendResult> {
    if (isGrantProof(proof)) return this.grants.send(proof);
    if (isSentProof(proof)) return { state: 'sent' };
    const refusal = await this.broadcast(proof as CosmosProof, bytes, isFirst ? gapRetriesMax : 0);
    if (!refusal) {
      this.refusals.delete(hash);
      return { state: 'sent' };
    }
    if (isFirst) return { state: 'refused', ...refusal };
    this.refusals.set(hash, { ...refusal, since: this.refusals.peek(hash)?.since });
    return { state: 'sent' };
  }

  /**
   * Why no node takes the transaction, waiting for earlier sequences at most `retriesMax` times; undefined where a node
   * may have it.
   */
  private async broadcast({ sender, sequence }: CosmosProof, bytes: Buffer, retriesMax: number) {
    const backoff = new Backoff(gapDelays);
    for (;;) {
      const answer = await this.chain().broadcastTransaction({ bytes }, call());
      if (answer.state !== 'REFUSED') return undefined;
      // A block may have it already, and then the node refuses it too: whether that is so is found out by looking.
      if (await this.isSequenceUsed(sender, sequence)) return undefined;
      const isGap = answer.codespace === sdkCodespace && answer.code === sdkCodes.wrongSequence;
      if (!isGap || backoff.failures === retriesMax) return refusalOf(answer);
      await backoff.wait();
    }
  }

  async find({ proof }: Settled, { hash }: SettlementTransaction): Promise<FindResult> {
    if (isGrantProof(proof)) return this.grants.find(proof);
    const transaction = await this.chain().findTransaction({ hash }, call());
    const height = BigInt(transaction.height);
    if (transaction.isIncluded) {
      this.absences.delete(hash);
      this.refusals.delete(hash);
      if (transaction.code === 0) return { state: 'included', isFinal: true, hash, height, at: this.now() };
      return impossible('invalid_transaction_state', 'The transaction failed on the chain');
    }
    // It was seen in a block, which another node may lack yet.
    if (isSentProof(proof)) return { state: 'absent' };
    const { sender, sequence, timeoutHeight } = proof as CosmosProof;
    const account = await this.chain().getAccount({ address: sender, withBalance: false }, call());
    const problem = problemOf(account, BigInt(sequence), BigInt(timeoutHeight));
    // At height 0, too few nodes could be asked for the absence to count.
    if (height === 0n) return { state: 'absent' };
    if (!problem) return this.refusedFor(hash, height);
    const since = this.absences.peek(hash);
    if (since === undefined) this.absences.set(hash, height);
    else if (height >= since + indexLagMax) return problem;
    return { state: 'absent' };
  }

  /** Waits some blocks: another node may have accepted the transaction before and may still include it. */
  private refusedFor(hash: string, height: bigint): FindResult {
    const refusal = this.refusals.peek(hash);
    if (!refusal) return { state: 'absent' };
    const { reason, message, since = height } = refusal;
    if (height >= since + refusedBlocks) return impossible(reason, message);
    this.refusals.set(hash, { reason, message, since });
    return { state: 'absent' };
  }

  private async isSequenceUsed(sender: string, sequence: string): Promise<boolean> {
    const account = await this.chain().getAccount({ address: sender, withBalance: false }, call());
    return account.exists && BigInt(account.sequence) > BigInt(sequence);
  }
}

const ready = (bytes: Buffer, hash: string): Plan => ({
  state: 'ready',
  sign: () => Promise.resolve({ bytes, hash }),
});

const insufficientFunds: PaymentProblem = {
  reason: 'insufficient_funds',
  message: 'The payer has too little money',
};

const sequenceUsed: Plan & PaymentProblem = {
  state: 'refused',
  reason: 'invalid_exact_cosmos_payload_sequence',
  message: 'The sequence was used before',
};

const call = () => newCall(newDocumentId(), timeoutMs);

const impossible = (reason: string, message: string) => ({ state: 'impossible' as const, reason, message });

/** Why the transaction cannot be included any more, unless a block has it. */
function problemOf({ sequence, height }: ChainAccount, signedSequence: bigint, timeoutHeight: bigint) {
  if (BigInt(sequence) > signedSequence) {
    return impossible('payment_replaced', 'Another transaction of the payer has used the sequence');
  }
  if (timeoutHeight !== 0n && BigInt(height) > timeoutHeight) {
    return impossible('payment_expired', 'The timeout height of the transaction is over');
  }
  return undefined;
}

const reasons: Readonly<Record<number, [reason: string, message: string]>> = {
  [sdkCodes.insufficientFunds]: ['insufficient_funds', 'The payer has too little money'],
  [sdkCodes.insufficientFee]: ['invalid_exact_cosmos_payload_fee', 'The fee is too low'],
  [sdkCodes.timeoutHeight]: ['payment_expired', 'The timeout height of the transaction is over'],
  [sdkCodes.wrongSequence]: ['invalid_exact_cosmos_payload_sequence', 'The sequence is not the next one of the payer'],
  [sdkCodes.unauthorized]: [
    'invalid_exact_cosmos_payload_signature',
    'The chain has no such account, or another number of it',
  ],
};

function refusalOf({ code, codespace }: BroadcastTransactionResponse): Omit<Refusal, 'since'> {
  const entry = codespace === sdkCodespace ? reasons[code] : undefined;
  const [reason, message] = entry ?? [
    'invalid_transaction_state',
    `The chain refuses the transaction: ${codespace} ${code}`,
  ];
  return { reason, message };
}
