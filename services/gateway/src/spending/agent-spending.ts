import { Batcher, type ItemResult } from '@granary/shared/concurrency/batcher';
import { ServiceError } from '@granary/shared/errors';
import type { PayLimits } from '@granary/shared/gen/granary/data/v1/PayLimits';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import type { CompleteSpendRequest } from '@granary/shared/gen/granary/payments/v1/CompleteSpendRequest';
import type { RepeatedRequest } from '@granary/shared/gen/granary/payments/v1/RepeatedRequest';
import type { SpendReservation } from '@granary/shared/gen/granary/payments/v1/SpendReservation';
import { newDocumentId } from '@granary/shared/ids';
import { message, newCall, type Call, type Client } from '@granary/shared/rpc/types';
import type { ReserveSpendRequest } from '@granary/shared/gen/granary/payments/v1/ReserveSpendRequest';
import { overloaded } from '../errors/problem';

/** Payments that one reservation covers, and that may wait for one, of a key for an application. */
const sharedMax = 100;
const waitingMax = 1_000;
/** How long the first payment of a reservation that is ready waits for the others. */
const lingerMs = 10;

type Payments = Pick<Client<PaymentsDefinition>, 'reserveSpend' | 'completeSpend' | 'cancelSpend' | 'resolveSpend'>;

/** A key with the permission Pay. Its application pays. */
export interface AgentKey {
  appId: string;
  keyId: string;
  /** The limits of the key; a key without them may pay any application. */
  payLimits?: PayLimits;
}

/** A payment that an agent key is to make. */
export interface Spend {
  agent: AgentKey;
  targetAppId: string;
  amountUtia: string;
  /** The part of the application in millionths; undefined: the default. */
  appSharePpm: number | undefined;
  requestId: string;
  /**
   * The hashes of a request with an Idempotency-Key: one of the agent, the caller, the application and the key, and one
   * of the content.
   */
  repeats?: RepeatedRequest | undefined;
}

/** A payment that an agent key is to make for a write. */
export interface WriteSpend extends Spend {
  /** How long the write and its payment may take. */
  lastsMs: number;
  /** The ticket of the write. */
  ticketId: string;
}

/** A payment that is reserved, to be completed or cancelled. */
export interface ReservedSpend {
  /** Present where the same request has paid before, with the answer that a read got: nothing is reserved. */
  paidBefore?: { answer: Buffer | undefined };
  /**
   * Resolves when it is paid. The answer to a read that may be repeated is kept for that. Rejects with PAYMENT_REFUSED,
   * or UNAVAILABLE where the outcome is unknown.
   */
  complete(answer?: Buffer): Promise<void>;
  /** Resolves when nothing of it is held back any more. */
  cancel(): Promise<void>;
}

/** A reservation of the price of one write. It ends with the write, also where this process ends before. */
export interface HeldSpend extends ReservedSpend {
  /** Has payments find out whether the write was done, and end the reservation. Returns at once. */
  resolve(): void;
}

export const isPaymentRefused = (error: unknown): error is ServiceError =>
  error instanceof ServiceError && error.reason === 'PAYMENT_REFUSED';

/**
 * Makes the payments of agent keys. Concurrent payments of one key to one application share a reservation: one movement
 * of money in place of many. A payment that is not ready soon after the others is reserved again.
 */
export class AgentSpending {
  private readonly flows = new Map<string, { batcher: Batcher<Spend, ReservedSpend>; users: number }>();

  constructor(
    private readonly payments: Payments,
    private readonly timeoutMs: number,
  ) {}

  /**
   * Rejects with PAYMENT_REFUSED and the reason, OVERLOADED, UNAVAILABLE; where the request may be repeated also with
   * IDEMPOTENCY_KEY_REUSED, REQUEST_IN_PROGRESS, TOO_MANY_REQUESTS.
   */
  async reserve(spend: Spend): Promise<ReservedSpend> {
    if (spend.repeats) return this.reserveOnce(spend);
    const name = `${spend.agent.keyId}/${spend.targetAppId}/${spend.appSharePpm ?? ''}`;
    let flow = this.flows.get(name);
    if (!flow) {
      const batcher = new Batcher<Spend, ReservedSpend>({
        run: (spends) => this.reserveAll(spends),
        sizeOf: () => 1,
        maxSize: sharedMax,
        maxWaiting: waitingMax,
        refusal: overloaded,
      });
      this.flows.set(name, (flow = { batcher, users: 0 }));
    }
    flow.users += 1;
    try {
      return await flow.batcher.submit(spend);
    } finally {
      flow.users -= 1;
      if (flow.users === 0) this.flows.delete(name);
    }
  }

  /** Holds what a write costs. Rejects as `reserve` does. */
  async hold(spend: WriteSpend): Promise<HeldSpend> {
    const { payments } = this;
    const { requestId, amountUtia, lastsMs, ticketId } = spend;
    const call = () => newCall(requestId, this.timeoutMs);
    const request = { ...requestOf([spend]), lastsMs, writeTicketId: ticketId };
    const reservation = await payments.reserveSpend(request, call());
    if (reservation.isPaid) return paidBefore(reservation);
    const completed = { reservation, amountsUtia: [amountUtia] };
    return {
      complete: async () => void (await payments.completeSpend(completed, call())),
      // Without an answer to these, payments asks data once the write should have ended.
      cancel: () => payments.cancelSpend(reservation, call()).then(done, done),
      resolve: () => void payments.resolveSpend(completed, call()).then(done, done),
    };
  }

  /** Reserves what a request that may be repeated costs, in a reservation of its own. */
  private async reserveOnce(spend: Spend): Promise<ReservedSpend> {
    const { payments } = this;
    const call = () => newCall(spend.requestId, this.timeoutMs);
    const reservation = await payments.reserveSpend(requestOf([spend]), call());
    if (reservation.isPaid) return paidBefore(reservation);
    const completed = { reservation, amountsUtia: [spend.amountUtia] };
    return {
      complete: async (answer) =>
        void (await payments.completeSpend(message<CompleteSpendRequest>({ ...completed, answer }), call())),
      // Without an answer the reservation expires; what is paid already stays paid.
      cancel: () => payments.cancelSpend(reservation, call()).then(done, done),
    };
  }

  private async reserveAll(spends: readonly Spend[]): Promise<Array<ItemResult<ReservedSpend>>> {
    try {
      return (await this.reserveTogether(spends)).map((value) => ({ value }));
    } catch (error) {
      if (spends.length === 1 || !isPaymentRefused(error)) throw error;
      // Together they exceed a limit, which some of them may keep.
      return Promise.all(
        spends.map(async (spend) => {
          try {
            return { value: (await this.reserveTogether([spend]))[0]! };
          } catch (cause) {
            return { error: cause };
          }
        }),
      );
    }
  }

  private async reserveTogether(spends: readonly Spend[]): Promise<ReservedSpend[]> {
    const [{ requestId }] = spends as [Spend];
    // Money moves to a definite end, also when the clients have gone.
    const call = () => newCall(requestId, this.timeoutMs);
    const reservation = await this.payments.reserveSpend(requestOf(spends), call());
    const shared = new SharedReservation(this.payments, reservation, spends.length, call);
    return spends.map((spend) => ({
      complete: async () => {
        const completed = shared.complete(spend.amountUtia);
        if (completed) return completed;
        return (await this.reserve(spend)).complete();
      },
      cancel: () => shared.cancel(),
    }));
  }
}

const done = () => undefined;

const paidBefore = ({ answer }: SpendReservation): HeldSpend => ({
  paidBefore: { answer },
  complete: () => Promise.resolve(),
  cancel: () => Promise.resolve(),
  resolve: done,
});

/** `repeats` is of a payment that is reserved by itself. */
function requestOf(spends: readonly Spend[]): ReserveSpendRequest {
  const [{ agent, targetAppId, appSharePpm, repeats }] = spends as [Spend];
  return message<ReserveSpendRequest>({
    paymentId: newDocumentId(),
    atMs: String(Date.now()),
    payerAppId: agent.appId,
    keyId: agent.keyId,
    limits: agent.payLimits ?? { allowedTargetApps: [], anyTarget: true },
    targetAppId,
    amountsUtia: spends.map(({ amountUtia }) => amountUtia),
    appSharePpm,
    lastsMs: 0,
    repeats,
  });
}

/**
 * A reservation of several payments. It ends once: the payments that are completed by then are made, and the rest of
 * the amount is released.
 */
class SharedReservation {
  private readonly completed: string[] = [];
  private linger: NodeJS.Timeout | undefined;
  private isEnding = false;
  private readonly ended: Promise<void>;
  private end: () => void = () => {};

  constructor(
    private readonly payments: Payments,
    private readonly reservation: SpendReservation,
    /** Payments that are neither completed nor cancelled. */
    private open: number,
    private readonly call: () => Call,
  ) {
    this.ended = new Promise<void>((resolve) => (this.end = resolve)).then(() => this.finish());
    // Nobody may wait for it.
    this.ended.catch(() => undefined);
  }

  /** Undefined when the reservation has ended without this payment. */
  complete(amountUtia: string): Promise<void> | undefined {
    if (this.isEnding) return undefined;
    this.completed.push(amountUtia);
    this.settleOne();
    return this.ended;
  }

  cancel(): Promise<void> {
    if (this.isEnding) return Promise.resolve();
    this.settleOne();
    return this.ended.catch(() => undefined);
  }

  private settleOne(): void {
    this.open -= 1;
    const end = () => {
      clearTimeout(this.linger);
      this.isEnding = true;
      this.end();
    };
    if (this.open === 0) end();
    else this.linger ??= setTimeout(end, lingerMs);
  }

  private async finish(): Promise<void> {
    const { payments, reservation, completed } = this;
    if (completed.length > 0) {
      try {
        await payments.completeSpend({ reservation, amountsUtia: completed }, this.call());
        return;
      } catch (error) {
        await this.release();
        throw error;
      }
    }
    await this.release();
  }

  /** Releases what is left of the reservation, which would otherwise expire; what is paid already stays paid. */
  private async release(): Promise<void> {
    await this.payments.cancelSpend(this.reservation, this.call()).catch(() => undefined);
  }
}
