import { Backoff, pause } from '@granary/shared/concurrency/backoff';
import { Cancellation, neverAborted, type CancelSignal } from '@granary/shared/concurrency/cancellation';
import { unavailable } from '@granary/shared/errors';
import type { Logger } from '@granary/shared/logger';
import type { FindResult, SendResult, SettlementNetwork, SettlementTransaction } from '../networks/settlement-network';
import { isEnded, isMoved, type Claim, type TakenClaim } from './claim';
import type { Claims } from './claims';

/** The pause between two looks at a transaction that is under way. */
const lookBackoff = { firstMs: 50, maxMs: 2_000 };

/** Claims on which a process works at a time. */
const usualRunningMax = 1_000;

/** How long the next block is waited for before a payment is planned again whose payer may have too little. */
const uncoveredWaitMs = 4_000;

interface Running {
  network: SettlementNetwork;
  /** Aborts once a block has the transfer, and when the claim has ended. */
  moved: Cancellation;
  ended: Promise<void>;
  /** It waits without further cost to this service, so it does not count against `runningMax`. */
  isIdle: boolean;
  /** Plans in a row by which the payer may have too little. */
  uncoveredPlans: number;
}

export interface SettlerOptions {
  claims: Claims;
  networks: ReadonlyMap<string, SettlementNetwork>;
  log: Logger;
  now: () => Date;
  /** Called when a payment was settled. */
  onSettled?: () => void;
  /** A thousand without it. */
  runningMax?: number;
}

/**
 * Settles claims: makes the transaction and stores it, sends it, and looks until the network has included it for good
 * or never can. One process at a time works on a claim, and each step is repeatable, so that one that was interrupted
 * anywhere is taken up by the next.
 */
export class Settler {
  private readonly running = new Map<string, Running>();
  private readonly stopping = new Cancellation();

  constructor(private readonly options: SettlerOptions) {}

  /**
   * Throws UNAVAILABLE while no further claim may be taken: those under way ask the nodes of the networks again and
   * again. With several networks, each may use at most half of the slots, so that a stalled one cannot starve the
   * others.
   */
  assertFree(network: string): void {
    const { networks, runningMax = usualRunningMax } = this.options;
    const busy = [...this.running.values()].filter(({ isIdle }) => !isIdle);
    if (busy.length >= runningMax) throw unavailable('Too many payments are being settled');
    if (networks.size === 1) return;
    const onNetwork = busy.filter((running) => running.network.id === network).length;
    if (onNetwork >= runningMax / 2) throw unavailable('Too many payments on this network are being settled');
  }

  /**
   * Resolves to the claim once a block has the transfer or it is refused, as it is then; before that after `waitMs`,
   * and when `aborted` aborts. Those who wait for the same claim share the work, which goes on until the claim has
   * ended. A claim on a network that is not in the configuration of this process is returned as it is.
   */
  async settle(
    { claim, isNew = false }: TakenClaim,
    waitMs: number,
    aborted: CancelSignal = neverAborted,
  ): Promise<Claim> {
    const network = this.options.networks.get(claim.network);
    if (isEnded(claim) || !network) return claim;
    const { moved } = this.running.get(claim.id) ?? this.start(claim, network, isNew);
    if (isMoved(claim)) return claim;
    await pauseUntil(waitMs, moved, aborted);
    return (await this.options.claims.byId(claim.id)) ?? claim;
  }

  /** Takes up claims that no process works on, on the networks of this one, at most `limit`. Returns how many. */
  async resume(limit: number, waitMs: number): Promise<number> {
    const ids = await this.options.claims.unfinished(limit, [...this.options.networks.keys()]);
    await Promise.all(
      ids.map(async (id) => {
        const claim = await this.options.claims.byId(id);
        if (claim) await this.settle({ claim }, waitMs);
      }),
    );
    return ids.length;
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await Promise.all([...this.running.values()].map(({ ended }) => ended));
  }

  private start(claim: Claim, network: SettlementNetwork, isNew: boolean): Running {
    const running: Running = {
      network,
      moved: new Cancellation(),
      ended: Promise.resolve(),
      isIdle: isMoved(claim),
      uncoveredPlans: 0,
    };
    this.running.set(claim.id, running);
    running.ended = this.run(claim.id, running, isNew ? claim : undefined).finally(() => {
      this.running.delete(claim.id);
      running.moved.abort();
    });
    return running;
  }

  /** Never rejects: what fails is tried again until the claim has ended. */
  private async run(id: string, running: Running, owned: Claim | undefined): Promise<void> {
    const { claims, log } = this.options;
    const { network } = running;
    const backoff = new Backoff(lookBackoff);
    const { stopping } = this;
    for (let claim = owned; !stopping.aborted; claim = undefined) {
      try {
        claim ??= await claims.acquire(id);
        if (await (claim ? this.step(claim, running) : this.isDoneElsewhere(id, running))) return;
      } catch (error) {
        if (!stopping.aborted) log.warn({ err: error, claim: id }, 'a payment is not settled yet, it is tried again');
      }
      const longestMs = running.uncoveredPlans > 0 ? uncoveredWaitMs : backoff.nextMs();
      await (network.nextBlock?.(longestMs, stopping) ?? pause(longestMs, stopping));
    }
  }

  /** Whether another process has ended the claim. */
  private async isDoneElsewhere(id: string, running: Running): Promise<boolean> {
    const claim = await this.options.claims.byId(id);
    if (claim && isMoved(claim)) this.noteMoved(running);
    return !claim || isEnded(claim);
  }

  private noteMoved(running: Running): void {
    running.isIdle = true;
    running.moved.abort();
  }

  /** Whether the claim has ended. */
  private async step(claim: Claim, running: Running): Promise<boolean> {
    const { network } = running;
    const { claims } = this.options;
    const isFirst = claim.transaction === null;
    const transaction = claim.transaction ?? (await this.prepare(claim, running));
    if (!transaction) return false;
    // Even a transaction that cannot be sent may be found, because somebody else may have sent the payment.
    const sending: Promise<SendResult | { state: 'failed'; error: unknown }> = network.send(
      claim,
      transaction,
      isFirst,
    );
    const sent = await sending.catch((error: unknown) => ({ state: 'failed' as const, error }));
    const result = await network.find(claim, transaction);
    if (result.state === 'included') return this.included(claim, result, running);
    if (result.state === 'impossible') return this.refuse(claim, result.reason);
    await this.noteAbsence(claim, result, running);
    if (sent.state === 'failed') throw sent.error;
    if (sent.state === 'sent' && !claim.sentAt) await claims.sent(claim.id);
    return sent.state === 'refused' && (await this.refuse(claim, sent.reason));
  }

  /** The transaction, stored; undefined where there is none yet, or the claim was refused. */
  private async prepare(claim: Claim, running: Running): Promise<SettlementTransaction | undefined> {
    const { claims, now } = this.options;
    // Nothing was sent, and nothing that is sent now could be included.
    if (claim.validUntil <= now()) {
      await claims.refused(claim.id, 'payment_expired');
      return undefined;
    }
    const plan = await running.network.plan(claim, running.uncoveredPlans);
    if (plan.state === 'refused') {
      await claims.refused(claim.id, plan.reason);
      return undefined;
    }
    running.uncoveredPlans = plan.state === 'uncovered' ? running.uncoveredPlans + 1 : 0;
    running.isIdle = plan.state === 'uncovered';
    if (plan.state === 'uncovered') return undefined;
    try {
      return await claims.prepare(claim.id, plan.sign);
    } finally {
      plan.release?.();
    }
  }

  /** Whether the claim has ended. */
  private async included(
    { id }: Claim,
    inclusion: FindResult & { state: 'included' },
    running: Running,
  ): Promise<boolean> {
    const { claims } = this.options;
    if (inclusion.isFinal) {
      const isSettled = await claims.settled(id, inclusion);
      if (isSettled) this.options.onSettled?.();
      return isSettled;
    }
    await claims.included(id, inclusion);
    this.noteMoved(running);
    return false;
  }

  private async noteAbsence(
    { id, blockHeight, failedAt, network, payer }: Claim,
    { hasFailed = false }: FindResult & { state: 'absent' },
    running: Running,
  ): Promise<void> {
    const { claims, log } = this.options;
    running.isIdle = hasFailed;
    if (blockHeight !== null && (await claims.dropped(id))) {
      log.warn(
        { claim: id, network },
        'the block of a payment is no longer one of the chain, the payment is sent again',
      );
    }
    if (!hasFailed || failedAt) return;
    await claims.failed(id);
    log.warn(
      { claim: id, network, payer },
      'the transaction of a payment has failed, and may be sent by somebody else only',
    );
  }

  private async refuse({ id, redeemedAt, network, payer, amount }: Claim, reason: string): Promise<boolean> {
    const isRefused = await this.options.claims.refused(id, reason);
    if (isRefused && redeemedAt) {
      this.options.log.error(
        { claim: id, network, payer, amount: amount.toString(), reason },
        'a payment has fallen out of the chain after it was answered, and cannot be made again: nothing is credited for it',
      );
    }
    return isRefused;
  }
}

/** Waits, at most until one of the signals aborts. */
async function pauseUntil(ms: number, one: CancelSignal, other: CancelSignal): Promise<void> {
  const either = new Cancellation();
  const end = () => either.abort();
  for (const signal of [one, other]) signal.addEventListener('abort', end);
  if (one.aborted || other.aborted) either.abort();
  await pause(ms, either);
  for (const signal of [one, other]) signal.removeEventListener('abort', end);
}
