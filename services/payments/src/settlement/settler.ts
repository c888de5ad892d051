import { Backoff, pause } from '@granary/shared/concurrency/backoff';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import { unavailable } from '@granary/shared/errors';
import type { Logger } from '@granary/shared/logger';
import type { SendResult, SettlementNetwork, SettlementTransaction } from '../networks/settlement-network';
import type { Claim, Claims, TakenClaim } from './claims';

/** Between two looks at a transaction that is under way. */
const looks = { firstMs: 50, maxMs: 2_000 };

/** Claims on which a process works at a time. */
const usualRunningMax = 1_000;

interface Running {
  /** CAIP-2. */
  network: string;
  ended: Promise<void>;
}

export interface SettlerOptions {
  claims: Claims;
  networks: ReadonlyMap<string, SettlementNetwork>;
  log: Logger;
  now: () => Date;
  /** A thousand without it. */
  runningMax?: number;
}

/**
 * Settles claims: makes the transaction and stores it, sends it, and looks until the network has included it or never can. One process
 * at a time works on a claim, and each step is repeatable, so that one that was interrupted anywhere is taken up by the next.
 */
export class Settler {
  private readonly running = new Map<string, Running>();
  private readonly stopping = new Cancellation();

  constructor(private readonly options: SettlerOptions) {}

  /**
   * Throws UNAVAILABLE while no further claim may be taken: those under way ask the nodes of the networks again and again. One network of
   * several has half of the places, so that one on which nothing ends leaves the others theirs.
   */
  assertFree(network: string): void {
    const { networks, runningMax = usualRunningMax } = this.options;
    if (this.running.size >= runningMax) throw unavailable('Too many payments are being settled');
    if (networks.size === 1) return;
    const onNetwork = [...this.running.values()].filter((running) => running.network === network).length;
    if (onNetwork >= runningMax / 2) throw unavailable('Too many payments on this network are being settled');
  }

  /**
   * Resolves to the claim once it is settled or refused, at the latest after `waitMs`, as it is then. Those who wait for the same claim
   * share the work. A claim on a network that is not in the configuration of this process is returned as it is.
   */
  async settle({ claim, isNew = false }: TakenClaim, waitMs: number): Promise<Claim> {
    if (isEnded(claim) || !this.options.networks.has(claim.network)) return claim;
    let running = this.running.get(claim.id);
    if (!running) {
      const run = this.run(claim.id, isNew ? claim : undefined).finally(() => this.running.delete(claim.id));
      running = { network: claim.network, ended: run };
      this.running.set(claim.id, running);
    }
    const ended = new Cancellation();
    void running.ended.then(() => ended.abort());
    await pause(waitMs, ended);
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

  /** Never rejects: what fails is tried again until the claim has ended. */
  private async run(id: string, owned: Claim | undefined): Promise<void> {
    const { claims, log } = this.options;
    const backoff = new Backoff(looks);
    const { stopping } = this;
    for (let claim = owned; !stopping.aborted; claim = undefined) {
      try {
        claim ??= await claims.own(id);
        if (claim) {
          if (await this.step(claim)) return;
        } else if (await this.isEnded(id)) return;
      } catch (error) {
        if (!stopping.aborted) log.warn({ err: error, claim: id }, 'a payment is not settled yet, it is tried again');
      }
      await backoff.wait(stopping);
    }
  }

  private async isEnded(id: string): Promise<boolean> {
    const claim = await this.options.claims.byId(id);
    return !claim || isEnded(claim);
  }

  /** Whether the claim has ended. */
  private async step(claim: Claim): Promise<boolean> {
    const network = this.options.networks.get(claim.network)!;
    const isFirst = claim.transaction === null;
    const transaction = claim.transaction ?? (await this.prepare(network, claim));
    if (!transaction) return false;
    const { claims } = this.options;
    // Also a transaction that cannot be sent may be found: somebody else may have sent the payment.
    const sending: Promise<SendResult | { state: 'failed'; error: unknown }> = network.send(
      claim,
      transaction,
      isFirst,
    );
    const sent = await sending.catch((error: unknown) => ({ state: 'failed' as const, error }));
    const found = await network.find(claim, transaction);
    if (found.state === 'included') return claims.settled(claim.id, found);
    if (found.state === 'impossible') return claims.refused(claim.id, found.reason);
    if (sent.state === 'failed') throw sent.error;
    if (sent.state === 'sent' && !claim.sentAt) await claims.sent(claim.id);
    return sent.state === 'refused' && claims.refused(claim.id, sent.reason);
  }

  private async prepare(network: SettlementNetwork, claim: Claim): Promise<SettlementTransaction | undefined> {
    const { claims, now } = this.options;
    // Nothing was sent, and nothing that is sent now could be included.
    if (claim.validUntil <= now()) {
      await claims.refused(claim.id, 'payment_expired');
      return undefined;
    }
    const plan = await network.plan(claim);
    if (plan.state === 'ready') return claims.prepare(claim.id, plan.sign);
    await claims.refused(claim.id, plan.reason);
    return undefined;
  }
}

export const isEnded = ({ state }: Claim): boolean => state !== 'claimed' && state !== 'settling';
