import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@granary/shared/errors';
import type { CompleteSpendRequest } from '@granary/shared/gen/granary/payments/v1/CompleteSpendRequest';
import type { RepeatedRequest } from '@granary/shared/gen/granary/payments/v1/RepeatedRequest';
import type { ReserveSpendRequest } from '@granary/shared/gen/granary/payments/v1/ReserveSpendRequest';
import type { SpendReservation } from '@granary/shared/gen/granary/payments/v1/SpendReservation';
import { keyReused } from '@granary/shared/idempotency/answers';
import { requestInProgress } from '@granary/shared/idempotency/once';
import type { Logger } from '@granary/shared/logger';
import { execute, row, type Pool } from '@granary/shared/postgres/pool';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import type { Call } from '@granary/shared/rpc/types';
import type { AgentPayments } from './agent-payments';

/** The most requests, and bytes of their answers, that are kept for one payer within a day. */
export const keptRequestsMax = 10_000;
export const keptBytesMax = 256 * 1024 * 1024;
/** How long a repetition waits for the first request. */
const waitMs = 5_000;
const pollMs = 50;
const forgetEveryMs = 600_000;
const forgottenMax = 1_000;
/** A request without a time of its own is under way at most so long, beside the reservation. */
const marginMs = 5_000;

interface SpendRow {
  request_hash: Buffer;
  payment_id: string;
  completion: string | null;
  answer: Buffer | null;
  is_paid: boolean;
}

/** Whether the row `r` is no longer kept. */
const isOver = sql`r.created_at < clock_timestamp() - interval '1 day'`;
/** Whether another request may take the row `r`: its own has ended without paying, or a day ago. */
const isFree = sql`(${isOver} or (r.paid_at is null and r.completion is null and r.expires_at < clock_timestamp()))`;

/**
 * Payments by agent keys for requests with an Idempotency-Key. Each is made once within a day. A repetition waits for
 * the first request, and gets the kept answer of a read. The answer of a write is kept by the data service.
 */
export class RepeatedSpends {
  constructor(
    private readonly pool: Pool,
    private readonly payments: Pick<AgentPayments, 'reserve' | 'complete' | 'move' | 'cancel' | 'resolve'>,
    private readonly reservationMs: number,
  ) {}

  /**
   * Reserves a payment, once for the request that it names; `isPaid` where that has paid already. Throws what
   * `AgentPayments.reserve` throws, IDEMPOTENCY_KEY_REUSED for another request, REQUEST_IN_PROGRESS where the first one
   * takes longer than some seconds, TOO_MANY_REQUESTS.
   */
  async reserve(request: ReserveSpendRequest, call: Call): Promise<SpendReservation> {
    const { repeats } = request;
    if (!repeats) return this.payments.reserve(request, call);
    const paid = await this.begin(request, repeats, call);
    if (paid) return paid;
    try {
      const reservation = await this.payments.reserve(request, call);
      return { ...reservation, identifier: repeats.identifier };
    } catch (error) {
      await this.forget(repeats.identifier, request.paymentId);
      throw error;
    }
  }

  /**
   * Moves what is reserved, and keeps the answer of a read; it is stored before, so that no crash lets it be paid
   * twice.
   */
  async complete(request: CompleteSpendRequest, call: Call): Promise<void> {
    const { identifier, paymentId, writeTicketId } = request.reservation!;
    const { answer } = request;
    if (!identifier) return this.payments.complete(request, call);
    if (answer) {
      await execute(
        this.pool,
        sql`update repeated_spend r set completion = ${JSON.stringify(completionOf(request))}, answer = ${answer},
              answer_bytes = ${answer.length} where ${isOf(identifier, paymentId)}`,
      );
    }
    await this.payments.complete(request, call);
    // A read whose answer is too long to be kept is paid again when it is repeated.
    if (answer || writeTicketId !== undefined) await this.markPaid(identifier, paymentId);
    else await this.forget(identifier, paymentId);
  }

  async cancel(reservation: SpendReservation, call: Call): Promise<void> {
    await this.payments.cancel(reservation, call);
    if (reservation.identifier) await this.forget(reservation.identifier, reservation.paymentId);
  }

  /** The outcome of the write is known then, and data keeps its answer. */
  async resolve(request: CompleteSpendRequest, call: Call): Promise<void> {
    await this.payments.resolve(request, call);
    const { identifier, paymentId } = request.reservation!;
    if (identifier) await this.forget(identifier, paymentId);
  }

  /** Takes the row of the request, or returns what has paid for it. */
  private async begin(
    request: ReserveSpendRequest,
    repeats: RepeatedRequest,
    call: Call,
  ): Promise<SpendReservation | undefined> {
    const { identifier, requestHash } = repeats;
    const deadlineMs = performance.now() + waitMs;
    for (;;) {
      const spend = await this.find(identifier);
      if (!spend) {
        if (await this.take(request, repeats)) return undefined;
        continue;
      }
      if (!spend.request_hash.equals(requestHash)) throw keyReused();
      if (spend.is_paid) return paidReservation(request, spend.answer);
      if (spend.completion !== null) await this.settle(identifier, spend, call);
      else if (performance.now() > deadlineMs || call.signal.aborted) throw requestInProgress();
      else await delay(pollMs);
    }
  }

  /** The row of a request that has paid, or may be under way. */
  private find(identifier: Buffer): Promise<SpendRow | undefined> {
    return row<SpendRow>(
      this.pool,
      sql`select request_hash, payment_id, completion, answer, paid_at is not null as is_paid
          from repeated_spend r where identifier = ${identifier} and not ${isFree}`,
    );
  }

  /** Inserts the row, or takes that of a request that has ended without paying. False: another request has it. */
  private async take(
    { paymentId, payerAppId, lastsMs }: ReserveSpendRequest,
    { identifier, requestHash }: RepeatedRequest,
  ): Promise<boolean> {
    const kept = (await row<{ is_full: boolean }>(
      this.pool,
      sql`select count(*) >= ${keptRequestsMax} or coalesce(sum(answer_bytes), 0) >= ${keptBytesMax} as is_full
          from repeated_spend where payer_app_id = ${payerAppId}`,
    ))!;
    if (kept.is_full) throw tooMany();
    const heldMs = Math.max(this.reservationMs, lastsMs) + marginMs;
    const taken = await execute(
      this.pool,
      sql`insert into repeated_spend as r (identifier, request_hash, payer_app_id, payment_id, expires_at)
          values (${identifier}, ${requestHash}, ${payerAppId}, ${paymentId},
            clock_timestamp() + ${heldMs} * interval '1 ms')
          on conflict (identifier) do update
            set request_hash = excluded.request_hash, payment_id = excluded.payment_id, completion = null, answer = null,
              answer_bytes = 0, paid_at = null, expires_at = excluded.expires_at, created_at = clock_timestamp()
            where ${isFree}`,
    );
    return taken === 1;
  }

  /**
   * Ends a payment that was to be completed: its process may have ended before the money moved, or before that was
   * noted. Where nothing is held for it any more, the request may be made anew.
   */
  private async settle(identifier: Buffer, { payment_id: paymentId, completion }: SpendRow, call: Call): Promise<void> {
    const isMoved = await this.payments.move(JSON.parse(completion!) as CompleteSpendRequest, call);
    if (isMoved) await this.markPaid(identifier, paymentId);
    else
      await execute(
        this.pool,
        sql`delete from repeated_spend r where ${isOf(identifier, paymentId)} and paid_at is null`,
      );
  }

  private markPaid(identifier: Buffer, paymentId: string): Promise<number> {
    return execute(
      this.pool,
      sql`update repeated_spend r set paid_at = clock_timestamp() where ${isOf(identifier, paymentId)}`,
    );
  }

  /** Lets the request be made anew, unless it is paid, or may be. */
  private async forget(identifier: Buffer, paymentId: string): Promise<void> {
    await execute(
      this.pool,
      sql`delete from repeated_spend r
          where ${isOf(identifier, paymentId)} and paid_at is null and completion is null`,
    );
  }
}

/** Whether the row `r` is that of this attempt. */
const isOf = (identifier: Buffer, paymentId: string): Sql =>
  sql`r.identifier = ${identifier} and r.payment_id = ${paymentId}`;

/** The parts of a request that are needed to complete its payment again. The identifier is stored separately. */
const completionOf = ({ reservation, amountsUtia }: CompleteSpendRequest) => ({
  reservation: { ...reservation, identifier: undefined },
  amountsUtia,
});

/** The reservation for a repetition whose payment was already made. It holds nothing. */
const paidReservation = ({ paymentId, atMs }: ReserveSpendRequest, answer: Buffer | null): SpendReservation => ({
  paymentId,
  atMs,
  kinds: [],
  appSharePpm: 0,
  isPaid: true,
  ...(answer && { answer }),
});

const tooMany = () =>
  new ServiceError(
    'RESOURCE_EXHAUSTED',
    'TOO_MANY_REQUESTS',
    `An app may pay for ${keptRequestsMax} requests with an Idempotency-Key in 24 hours, with ${keptBytesMax} bytes of answers`,
  );

/** Deletes what is older than a day. */
export function startForgettingSpends(pool: Pool, log: Logger): { stop(): Promise<void> } {
  return startScheduledTask({
    pool,
    log,
    name: 'old payments by agent keys',
    everyMs: forgetEveryMs,
    run: async (stopping) => {
      const forgetSome = () =>
        execute(
          pool,
          sql`delete from repeated_spend where identifier in (
                select identifier from repeated_spend r where ${isOver} limit ${forgottenMax} for update skip locked)`,
        );
      while (!stopping.aborted && (await forgetSome()) === forgottenMax);
    },
  });
}
