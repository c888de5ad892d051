import type { BudgetLease } from '@granary/shared/concurrency/keyed-budget';
import { KeyedBudget } from '@granary/shared/concurrency/keyed-budget';
import { MinimumRateMonitor, type MonitoredTransfer } from './minimum-rate';
import { ServiceError } from '@granary/shared/errors';
import { startDeadline, cancelDeadline, type Deadline } from '@granary/shared/concurrency/deadlines';
import { overloaded } from '../errors/problem';
import type { ClientBudget, ClientKeys, RequestMemory } from './client-budget';

/** Bodies up to this size may take the reserve of the memory. */
const smallBodyBytes = 64 * 1024;

export interface BodySettings {
  WAITING_BODIES: number;
  WAITING_BODIES_PER_APP: number;
  WAITING_BODIES_PER_CLIENT: number;
  BODY_TIMEOUT_MS: number;
  BODY_GRACE_MS: number;
  BODY_MIN_BYTES_PER_SECOND: number;
}

/**
 * Admits bodies of requests. The number of bodies that are arriving is bounded by application, by address and in total,
 * and each must arrive at a minimum rate. At the bound the body that has been idle longest is evicted, of the client
 * with the most bodies. The bytes of a body count against the memory of the process until its request has been
 * processed.
 */
export class Bodies {
  private readonly places: ClientBudget;
  private readonly rate: MinimumRateMonitor;
  private readonly timeoutMs: number;
  private tooSlow = 0;

  constructor(
    private readonly memory: RequestMemory,
    settings: BodySettings,
  ) {
    this.places = new KeyedBudget({
      total: settings.WAITING_BODIES,
      perKey: { app: settings.WAITING_BODIES_PER_APP, address: settings.WAITING_BODIES_PER_CLIENT },
    });
    this.rate = new MinimumRateMonitor({
      graceMs: settings.BODY_GRACE_MS,
      windowMs: settings.BODY_GRACE_MS,
      bytesPerSecond: settings.BODY_MIN_BYTES_PER_SECOND,
    });
    this.timeoutMs = settings.BODY_TIMEOUT_MS;
  }

  /**
   * Begins with a body of `announcedBytes`, undefined where that is not known. `refuse` is called at most once, when
   * the body is evicted (OVERLOADED) or arrives too slowly (REQUEST_TIMEOUT). Throws OVERLOADED where there is no
   * place.
   */
  begin(keys: ClientKeys, announcedBytes: number | undefined, refuse: (error: ServiceError) => void): IncomingBody {
    const { budget, reserveBytes } = this.memory;
    const giveWay = () => refuse(overloaded());
    const place = this.places.open(keys, giveWay);
    if (!place.tryTake(1)) {
      place.release();
      throw overloaded();
    }
    const late = () => {
      this.tooSlow += 1;
      refuse(bodyTimedOut());
    };
    return new IncomingBody(
      place,
      budget.open(keys, giveWay),
      this.rate.start(late),
      startDeadline(this.timeoutMs, late),
      announcedBytes,
      reserveBytes,
    );
  }

  counts(): { waiting: number; limit: number; evicted: number; tooSlow: number } {
    const { used, total, evicted } = this.places.counts();
    return { waiting: used, limit: total, evicted, tooSlow: this.tooSlow };
  }
}

/** One body that is read, and then held until its request is done. */
export class IncomingBody {
  constructor(
    private readonly place: BudgetLease,
    private readonly bytes: BudgetLease,
    private readonly transfer: MonitoredTransfer,
    private readonly deadline: Deadline,
    private readonly announcedBytes: number | undefined,
    private readonly reserveBytes: number,
  ) {}

  /** Counts bytes that have come; false where the memory is used up. */
  add(sizeBytes: number): boolean {
    this.place.touch();
    this.transfer.add(sizeBytes);
    const isSmall = (this.announcedBytes ?? this.bytes.amount + sizeBytes) <= smallBodyBytes;
    return this.bytes.tryTake(sizeBytes, isSmall ? 0 : this.reserveBytes);
  }

  /** The body has arrived, or no more of it is read. Its place is free; its bytes are still charged. */
  end(): void {
    this.place.release();
    this.transfer.stop();
    cancelDeadline(this.deadline);
    this.bytes.pin();
  }

  /** Releases place and bytes. May be called again. */
  release(): void {
    this.end();
    this.bytes.release();
  }
}

function bodyTimedOut(): ServiceError {
  return new ServiceError('DEADLINE_EXCEEDED', 'REQUEST_TIMEOUT', 'The body of the request took too long to come');
}
