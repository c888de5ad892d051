import { degraded, healthy, type Finding } from '@granary/shared/health/check';
import { unavailable } from '@granary/shared/errors';
import type { Logger } from '@granary/shared/logger';
import { oneNode, type Block, type NodePool } from '../../networks/node-pool';
import type {
  FindResult,
  Plan,
  SendResult,
  Settled,
  SettlementNetwork,
  SettlementTransaction,
} from '../../networks/settlement-network';
import type { PaymentProblem, UnsentPayment } from '../../networks/quoted-network';
import { lifetimeSeconds, type SolanaProof } from './verify';
import type { FeeKey } from './fee-key';
import { blockhashOf, signFee } from './signed-payment';
import type { Commitment, SolanaNode, TransactionStatus } from './node';

export interface SolanaNetworkOptions {
  /** CAIP-2. */
  id: string;
  nodes: NodePool<Block, SolanaNode>;
  key: FeeKey;
  /** The commitment at which a transaction counts as final. */
  commitment: Commitment;
  log: Logger;
  now: () => Date;
}

/** The cost of ten of the most expensive accepted transactions, in lamports. With less, no payments are taken. */
const balanceMin = 10_100_000n;

/**
 * How long after its presentation a payment may name a block that no node has yet: nodes are a few seconds behind one
 * another.
 */
const unknownBlockMs = 10_000;

/** A network of Solana behind its nodes, on which one account of this service pays the fees. */
export class SolanaNetwork implements SettlementNetwork {
  readonly id: string;
  readonly paysFees = true;
  private state: 'open' | 'no money' | 'one node' | 'no node' = 'no node';

  constructor(private readonly options: SolanaNetworkOptions) {
    this.id = options.id;
  }

  isOpen(): boolean {
    return this.state === 'open';
  }

  health(): Finding {
    const { id, nodes, key } = this.options;
    const problems = nodes.problems.join('; ');
    if (this.state === 'no money') {
      return degraded(`${id}: ${key.address} has too little to pay fees, no payments are taken`);
    }
    if (this.state === 'one node') return degraded(`${id}: ${oneNode}`);
    if (this.state === 'no node') return degraded(`${id}: no node can be asked, no payments are taken: ${problems}`);
    return problems === '' ? { ...healthy, message: id } : degraded(`${id}: ${problems}`);
  }

  /** Looks whether the nodes answer and the account can pay fees. Never rejects. */
  async watch(): Promise<void> {
    const { nodes, key, log } = this.options;
    const before = this.state;
    await nodes.compare();
    this.state = await nodes
      .ask(async (node) => {
        if (!nodes.canConfirm) return 'one node';
        return (await node.balance(key.address)) < balanceMin ? 'no money' : 'open';
      })
      .catch(() => 'no node' as const);
    if (this.state !== before) log.info({ network: this.id, state: this.state }, 'a network of x402 is open or closed');
  }

  /** A transaction that would fail costs its fee: it is simulated first. */
  async plan({ proof, validUntil }: Settled): Promise<Plan> {
    const { nodes, key, now } = this.options;
    const { transaction, feePayer } = proof as SolanaProof;
    if (feePayer !== key.address) throw unavailable('This service has no key of the payer of the fee');
    const problem = await nodes.ask((node) => node.simulate(transaction));
    if (problem?.includes('BlockhashNotFound')) {
      const presentedAtMs = validUntil.getTime() - Number(lifetimeSeconds) * 1_000;
      // Nothing was sent, so it can be refused. Anybody can name a block that there is not, and would keep others
      // waiting.
      if (now().getTime() - presentedAtMs > unknownBlockMs) return unknownBlock;
      throw unavailable('The node does not know the block that is named');
    }
    if (problem !== undefined) return refusedByChain(problem);
    const signed = signFee(transaction, key);
    return { state: 'ready', sign: () => Promise.resolve(signed) };
  }

  /** The simulation also tells when the transaction was already executed. */
  async findProblem({ proof }: UnsentPayment): Promise<PaymentProblem | undefined> {
    const problem = await this.options.nodes.ask((node) => node.simulate((proof as SolanaProof).transaction));
    if (problem === undefined) return undefined;
    return problem.includes('BlockhashNotFound') ? unknownBlock : refusedByChain(problem);
  }

  async send(_payment: Settled, { bytes }: SettlementTransaction): Promise<SendResult> {
    await this.options.nodes.ask((node) => node.send(bytes));
    return { state: 'sent' };
  }

  /** Its first signature, which is unlike that of any other transaction, is what it is found by. */
  find({ validUntil }: Settled, { bytes, hash }: SettlementTransaction): Promise<FindResult> {
    const { nodes, commitment } = this.options;
    return nodes.ask(async (node) => {
      // First, because a block may have it in between.
      const isOver = await hasExpired(node, blockhashOf(bytes), validUntil);
      const status = await node.status(hash);
      if (!status) return isOver ? expired : { state: 'absent' };
      if (status.commitment === 'processed') return { state: 'absent' };
      const isFinal = status.commitment === 'finalized' || status.commitment === commitment;
      if (!status.hasSucceeded) return isFinal ? failed : { state: 'absent' };
      // One alone could invent a transfer; another one may have it a moment later.
      const isConfirmed = await nodes.confirm(node, async (other) => isIncluded(await other.status(hash)));
      if (!isConfirmed) return { state: 'absent' };
      return { state: 'included', hash, height: status.slot, at: new Date(), isFinal };
    });
  }
}

const isIncluded = (status: TransactionStatus | undefined): boolean =>
  status !== undefined && status.hasSucceeded && status.commitment !== 'processed';

/**
 * Whether no block can have the transaction any more. A block that is too new for a node is unknown to it, like one
 * that is too old: so the last block of the node must be later than the payment can be.
 */
async function hasExpired(node: SolanaNode, blockhash: string, validUntil: Date): Promise<boolean> {
  if ((await node.finalizedTimeSeconds()) * 1_000 <= validUntil.getTime()) return false;
  return !(await node.isBlockhashValid(blockhash));
}

const unknownBlock: Plan & PaymentProblem = {
  state: 'refused',
  reason: 'payment_expired',
  message: 'No node knows the block that the transaction names',
};

const expired: FindResult = {
  state: 'impossible',
  reason: 'payment_expired',
  message: 'The block that the transaction names is too old',
};

const failed: FindResult = {
  state: 'impossible',
  reason: 'invalid_transaction_state',
  message: 'The transaction failed on the chain',
};

/** The first error of the token program is that its source has too little. */
const refusedByChain = (problem: string): Plan & PaymentProblem => ({
  state: 'refused',
  ...(/"Custom":1\}?\]/.test(problem)
    ? { reason: 'insufficient_funds', message: 'The payer has too little of the token' }
    : { reason: 'invalid_transaction_state', message: `The chain would refuse the transaction: ${problem}` }),
});
