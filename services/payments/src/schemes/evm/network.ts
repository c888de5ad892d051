import type { CancelSignal } from '@granary/shared/concurrency/cancellation';
import { unavailable } from '@granary/shared/errors';
import { degraded, healthy, type Finding } from '@granary/shared/health/check';
import { RpcError } from '@granary/shared/http/json-rpc';
import type { Logger } from '@granary/shared/logger';
import { NextBlock } from '../../networks/next-block';
import { oneNode, type NodePool } from '../../networks/node-pool';
import type {
  FindResult,
  Plan,
  SendResult,
  Settled,
  SettlementNetwork,
  SettlementTransaction,
} from '../../networks/settlement-network';
import type { PaymentProblem, UnsentPayment } from '../../networks/quoted-network';
import { spelledOnce } from './address';
import type { EvmProof } from './verify';
import { isRevert, type EvmBlock, type EvmNode, type Fees } from './node';
import { AuthorizationUses, headMaxAgeMs, isSpent } from './authorization-uses';
import type { GasKey } from './gas-key';
import { feesWithin, replaceTransaction, signTransaction } from './signed-transaction';
import { PayerFunds, type Reservation } from './payer-funds';
import { expired, insufficientFunds } from './problems';
import { transferCall } from './token';
import type { StoredTransaction, Transactions } from './transactions';

export interface EvmNetworkOptions {
  /** CAIP-2. */
  id: string;
  nodes: NodePool<EvmBlock, EvmNode>;
  key: GasKey;
  transactions: Transactions;
  /** How many blocks have to follow that of a transfer. */
  depthBlocks: bigint;
  /** The age at which a transaction that is not included is replaced by one with higher fees. */
  replaceAfterMs: number;
  /** The most that a unit of gas may cost, in wei. */
  maxFeePerGas: bigint;
  log: Logger;
}

/** More than a transfer takes: with less than it costs nothing more is taken. */
const usualGas = 120_000n;
/** The most transactions that one round looks at to send them again. */
const resendMax = 100;
/** Meanwhile the settlement itself sends. */
const resendAfterMs = 3_000;
/** How many plans in a row may find that the payer's balance does not cover all payments; the next one refuses. */
const uncoveredPlansMax = 2;

/** An EVM network behind its nodes, on which one account of this service pays the gas. */
export class EvmNetwork implements SettlementNetwork {
  readonly id: string;
  readonly keepsQuotesSecret = true;
  readonly paysFees = true;
  readonly tooLongReason = expired.reason;
  private state: 'open' | 'no gas' | 'dear gas' | 'one node' | 'no node' = 'no node';
  private readonly uses: AuthorizationUses;
  private readonly funds: PayerFunds;
  private readonly blocks: NextBlock;

  constructor(private readonly options: EvmNetworkOptions) {
    const { id, nodes, key, transactions } = options;
    this.id = id;
    this.uses = new AuthorizationUses({ ...options, address: key.address });
    this.funds = new PayerFunds(transactions);
    const latest = () => nodes.ask((_, { hash }) => Promise.resolve(hash)).catch(() => undefined);
    this.blocks = new NextBlock(latest);
  }

  /** Pays the gas. */
  get address(): string {
    return this.options.key.address;
  }

  spelledOnce(address: string): string {
    return spelledOnce(address);
  }

  isOpen(): boolean {
    return this.state === 'open';
  }

  health(): Finding {
    const { id, nodes, maxFeePerGas } = this.options;
    const problems = nodes.problems.join('; ');
    if (this.state === 'no gas')
      return degraded(`${id}: ${this.address} has too little to pay gas, no payments are taken`);
    if (this.state === 'dear gas')
      return degraded(
        `${id}: gas costs more than ${gweiOf(maxFeePerGas)} gwei (EVM_MAX_FEE_GWEI), no payments are taken`,
      );
    if (this.state === 'one node') return degraded(`${id}: ${oneNode}`);
    if (this.state === 'no node') return degraded(`${id}: no node can be asked, no payments are taken: ${problems}`);
    return problems === '' ? { ...healthy, message: id } : degraded(`${id}: ${problems}`);
  }

  /** Looks whether the nodes answer, gas costs no more than it may, and the account can pay it. Never rejects. */
  async watch(): Promise<void> {
    const { nodes, log } = this.options;
    const before = this.state;
    await nodes.compare();
    this.state = await nodes
      .ask(async (node, latest) => {
        if (!nodes.canConfirm) return 'one node';
        const fees = await this.feesAt(node, latest);
        if (!fees) return 'dear gas';
        return (await node.balance(this.address)) < usualGas * fees.maxFeePerGas ? 'no gas' : 'open';
      })
      .catch(() => 'no node' as const);
    if (this.state !== before) log.info({ network: this.id, state: this.state }, 'a network of x402 is open or closed');
  }

  async plan({ proof }: Settled, uncoveredPlans = 0): Promise<Plan> {
    const { nodes } = this.options;
    const plan = (node: EvmNode, latest: EvmBlock) => this.planWith(node, latest, proof as EvmProof, uncoveredPlans);
    const firstPlan = await nodes.ask(plan, headMaxAgeMs);
    // The node may have a later block now, in which the reason of the refusal has ended.
    return firstPlan.state === 'refused' ? nodes.ask(plan) : firstPlan;
  }

  async findProblem({ proof }: UnsentPayment): Promise<PaymentProblem | undefined> {
    const find = async (node: EvmNode, latest: EvmBlock) => {
      const [isUsed, isCovered] = await Promise.all([
        isSpent(node, proof as EvmProof, latest.height),
        this.funds.cover(node, latest, proof as EvmProof),
      ]);
      if (isUsed) return nonceUsed;
      return isCovered ? undefined : insufficientFunds;
    };
    const problem = await this.options.nodes.ask(find, headMaxAgeMs);
    // The node may have a later block now, in which the payer has the money.
    return problem && this.options.nodes.ask(find);
  }

  async send(_payment: Settled, { hash }: SettlementTransaction): Promise<SendResult> {
    const stored = await this.options.transactions.ofClaim(hash);
    // A transaction that was sent once is sent again by `keepNonces`.
    if (stored && !stored.isSent) await this.broadcast(stored);
    return { state: 'sent' };
  }

  async find({ proof }: Settled, { hash }: SettlementTransaction): Promise<FindResult> {
    return this.uses.find(proof as EvmProof, await this.options.transactions.ofClaim(hash));
  }

  nextBlock(timeoutMs: number, aborted: CancelSignal): Promise<void> {
    return this.blocks.wait(timeoutMs, aborted);
  }

  /**
   * Sends again what is not included, with higher fees if that takes long, also what settles nothing any more: a nonce
   * that is never used would hold back all later ones.
   */
  async keepNonces(): Promise<void> {
    const { nodes, transactions, replaceAfterMs } = this.options;
    const count = await nodes.ask((node) => node.transactionCount(this.address));
    for (const stored of await transactions.from(count, resendMax)) {
      if (stored.ageMs < Math.min(resendAfterMs, replaceAfterMs)) continue;
      await this.broadcast(stored.ageMs < replaceAfterMs ? stored : await this.replaced(stored));
    }
    await transactions.forget(count);
  }

  private async planWith(node: EvmNode, latest: EvmBlock, proof: EvmProof, uncoveredPlans: number): Promise<Plan> {
    if (latest.timestampSeconds >= BigInt(proof.validBefore)) {
      return (await isSpent(node, proof, latest.height)) ? alreadySpent : { state: 'refused', ...expired };
    }
    if (latest.timestampSeconds <= BigInt(proof.validAfter)) {
      throw unavailable('The time of the authorization has not begun in the latest block');
    }
    // This comes first, for it costs nothing where other payments of the payer have asked for it.
    const funds = await this.funds.reserve(node, latest, proof);
    if (funds === 'uncovered' && uncoveredPlans < uncoveredPlansMax) return { state: 'uncovered' };
    if (funds === 'insufficient' || funds === 'uncovered') {
      // It may have been spent on this very payment.
      return (await isSpent(node, proof, latest.height)) ? alreadySpent : { state: 'refused', ...insufficientFunds };
    }
    try {
      const plan = await this.planTransfer(node, latest, proof, funds);
      if (plan.state !== 'ready') funds.release();
      return plan;
    } catch (error) {
      funds.release();
      throw error;
    }
  }

  private async planTransfer(
    node: EvmNode,
    latest: EvmBlock,
    proof: EvmProof,
    { balance, release }: Reservation,
  ): Promise<Plan> {
    const { key, transactions } = this.options;
    if (await isSpent(node, proof, latest.height)) return { ...alreadySpent, release };
    const call = { to: proof.asset, data: transferCall(proof) };
    let gas: bigint;
    try {
      gas = await node.estimateGas({ ...call, from: key.address });
    } catch (error) {
      if (!isRevert(error)) throw error;
      // It is estimated in the latest state, where another transaction may have moved the money, or this payment.
      if ((await node.latest()).height > latest.height) {
        throw unavailable('The token refuses the transfer in a later block than was looked at');
      }
      return refusedByToken(error.data);
    }
    const [fees, count] = await Promise.all([this.feesAt(node, latest), node.transactionCount(key.address)]);
    if (!fees) {
      this.state = 'dear gas';
      throw unavailable('Gas costs more than this service pays for it');
    }
    const content = { ...call, ...fees, chainId: BigInt(this.id.split(':')[1]!), gasLimit: (gas * 6n) / 5n };
    const since = { count, sinceHeight: latest.height };
    return {
      state: 'ready',
      release,
      sign: async (tx) => {
        // All other payments wait for the nonce, so it is taken last. Another process may have signed one of the same
        // payer.
        await transactions.lockPayer(tx, proof);
        if (balance < BigInt(proof.value) + (await transactions.underWay(proof, latest.height, tx))) {
          throw unavailable('The payer has other payments under way, which its balance may not cover');
        }
        return transactions.append(tx, since, (nonce) => signTransaction(key, { ...content, nonce }));
      },
    };
  }

  /** The fees that a transaction offers for gas after a block; undefined where gas costs more than allowed. */
  private async feesAt(node: EvmNode, latest: EvmBlock): Promise<Fees | undefined> {
    return feesWithin(await node.fees(latest), latest.baseFee, this.options.maxFeePerGas);
  }

  /** The transaction with higher fees, stored; the same one where that would not help, or would cost too much. */
  private async replaced(stored: StoredTransaction): Promise<StoredTransaction> {
    const { nodes, key, transactions, maxFeePerGas, log } = this.options;
    const usual = await nodes.ask((node, latest) => this.feesAt(node, latest));
    const replacement = usual && replaceTransaction(key, stored.bytes, usual, maxFeePerGas);
    if (!replacement || !(await transactions.replace(stored, replacement))) return stored;
    const { nonce } = stored;
    log.warn(
      { network: this.id, nonce: nonce.toString(), hash: replacement.hash },
      'a transaction is sent with higher fees',
    );
    return { ...stored, ...replacement };
  }

  private async broadcast(transaction: SettlementTransaction): Promise<void> {
    await this.options.nodes.ask(async (node) => {
      try {
        await node.send(transaction.bytes);
      } catch (error) {
        if (error instanceof RpcError && /insufficient funds/i.test(error.message)) this.state = 'no gas';
        if (!isKnown(error)) throw error;
      }
    });
    await this.options.transactions.sent(transaction);
  }
}

/** Whether the node has the transaction, or another one with its nonce that pays more or is included. */
const isKnown = (error: unknown): boolean =>
  error instanceof RpcError &&
  /already (known|imported|exists)|known transaction|nonce too low|underpriced/i.test(error.message);

const gweiOf = (wei: bigint): bigint => wei / 1_000_000_000n;

/** Nothing is sent: what has used the authorization is looked for. */
const alreadySpent: Plan & { state: 'ready' } = {
  state: 'ready',
  sign: () => Promise.resolve({ bytes: Buffer.alloc(0), hash: '' }),
};

const nonceUsed: PaymentProblem = {
  reason: 'invalid_exact_evm_nonce_already_used',
  message: 'The authorization was used or cancelled before',
};

const refusedByToken = (why: string): Plan => ({
  state: 'refused',
  reason: 'invalid_transaction_state',
  message: `The token refuses the transfer: ${why}`,
});
