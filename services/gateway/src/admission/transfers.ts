import { MinimumRateMonitor, type MonitoredTransfer } from './minimum-rate';
import { ServiceError } from '@granary/shared/errors';
import { startDeadline, cancelDeadline, type Deadline } from '@granary/shared/concurrency/deadlines';
import type { PumpObserver } from '@granary/shared/http/pipe';
import { overloaded } from '../errors/problem';
import type { ClientKeys } from './client-budget';
import { TransferSlots, type TransferSlot } from './transfer-slots';

export interface TransferSettings {
  STREAM_CONCURRENCY: number;
  STREAM_APP_PERCENT: number;
  STREAM_CLIENT_PERCENT: number;
  QUEUE_TIMEOUT_MS: number;
  UPLOAD_TIMEOUT_MS: number;
  UPLOAD_GRACE_MS: number;
  DOWNLOAD_GRACE_MS: number;
  TRANSFER_MIN_BYTES_PER_SECOND: number;
  EXPORTS: number;
  EXPORTS_PER_APP: number;
  IMPORTS: number;
  IMPORTS_PER_APP: number;
}

/** An upload is stalled after this long without bytes. */
const stalledAfterMs = 500;
/** How often a transfer is touched while its client waits. */
const touchEveryMs = 1_000;

/** Uploads and downloads of blobs, exports and imports under way: how many there may be, and how slow their clients. */
export class Transfers {
  readonly uploadPlaces: TransferSlots;
  readonly downloadPlaces: TransferSlots;
  readonly exportPlaces: TransferSlots;
  readonly importPlaces: TransferSlots;
  private readonly uploadRate: MinimumRateMonitor;
  private readonly downloadRate: MinimumRateMonitor;
  private slowUploads = 0;
  private slowDownloads = 0;
  private slowExports = 0;
  private slowImports = 0;

  constructor(private readonly settings: TransferSettings) {
    const total = settings.STREAM_CONCURRENCY;
    const part = (percent: number) => Math.max(1, Math.floor((total * percent) / 100));
    const limits = {
      total,
      perApp: part(settings.STREAM_APP_PERCENT),
      perAddress: part(settings.STREAM_CLIENT_PERCENT),
      queueTimeoutMs: settings.QUEUE_TIMEOUT_MS,
    };
    this.uploadPlaces = new TransferSlots(limits);
    this.downloadPlaces = new TransferSlots(limits);
    const { EXPORTS, EXPORTS_PER_APP, IMPORTS, IMPORTS_PER_APP, QUEUE_TIMEOUT_MS } = settings;
    // The apps of one backend have one address.
    const places = (count: number, perApp: number) =>
      new TransferSlots({ total: count, perApp, perAddress: count, queueTimeoutMs: QUEUE_TIMEOUT_MS });
    this.exportPlaces = places(EXPORTS, EXPORTS_PER_APP);
    this.importPlaces = places(IMPORTS, IMPORTS_PER_APP);
    const rate = (windowMs: number) =>
      new MinimumRateMonitor({
        graceMs: windowMs,
        windowMs,
        bytesPerSecond: settings.TRANSFER_MIN_BYTES_PER_SECOND,
      });
    this.uploadRate = rate(settings.UPLOAD_GRACE_MS);
    this.downloadRate = rate(settings.DOWNLOAD_GRACE_MS);
  }

  /** Does the work of an upload once there is a place for it. Rejects with OVERLOADED where there is none. */
  upload<T>(keys: ClientKeys, work: (transfer: Upload) => Promise<T>): Promise<T> {
    const upload = new Upload(this.settings.UPLOAD_TIMEOUT_MS, this.uploadRate, () => (this.slowUploads += 1));
    return within(upload, this.uploadPlaces, keys, work);
  }

  /** Does the work of a download once there is a place for it. Rejects with OVERLOADED where there is none. */
  download<T>(keys: ClientKeys, work: (transfer: Download) => Promise<T>): Promise<T> {
    const download = new Download(this.downloadRate, () => (this.slowDownloads += 1));
    return within(download, this.downloadPlaces, keys, work);
  }

  /** Does the work of an export once there is a place for it. Rejects with OVERLOADED where there is none. */
  export<T>(keys: ClientKeys, work: (transfer: Download) => Promise<T>): Promise<T> {
    const download = new Download(this.downloadRate, () => (this.slowExports += 1));
    return within(download, this.exportPlaces, keys, work);
  }

  /** Does the work of an import once there is a place for it. Rejects with OVERLOADED where there is none. */
  import<T>(keys: ClientKeys, work: (transfer: Upload) => Promise<T>): Promise<T> {
    const upload = new Upload(undefined, this.uploadRate, () => (this.slowImports += 1));
    return within(upload, this.importPlaces, keys, work);
  }

  counts(): Record<'slowUploads' | 'slowDownloads' | 'slowExports' | 'slowImports', number> {
    const { slowUploads, slowDownloads, slowExports, slowImports } = this;
    return { slowUploads, slowDownloads, slowExports, slowImports };
  }
}

async function within<D extends Transfer, T>(
  transfer: D,
  places: TransferSlots,
  keys: ClientKeys,
  work: (transfer: D) => Promise<T>,
): Promise<T> {
  try {
    await transfer.enter(places, keys);
    return await work(transfer);
  } finally {
    transfer.end();
  }
}

/** One transfer, with its place; it ends by `end`, and before that by `cancel`. */
abstract class Transfer implements PumpObserver {
  private error: ServiceError | undefined;
  private abort: ((error: ServiceError) => void) | undefined;
  protected place: TransferSlot | undefined;

  /** Rejects with OVERLOADED where there is no place. */
  async enter(places: TransferSlots, keys: ClientKeys): Promise<void> {
    this.place = await places.enter(keys, () => this.cancel(overloaded()));
  }

  /** Ends the work on it with an error. */
  cancel(error: ServiceError): void {
    this.error ??= error;
    this.abort?.(this.error);
  }

  /** `abort` is called when the transfer is cancelled; throws when that has happened already. */
  onCancel(abort: (error: ServiceError) => void): void {
    if (this.error) throw this.error;
    this.abort = abort;
  }

  /** Does work for which the client waits: it is not idle then, however long that takes. */
  async whileWaiting<T>(work: () => Promise<T>): Promise<T> {
    const timer = setInterval(() => this.moved(0), touchEveryMs);
    try {
      return await work();
    } finally {
      clearInterval(timer);
    }
  }

  /** Gives the place back. To be called once, whatever has become of the transfer. */
  end(): void {
    this.abort = undefined;
    this.place?.leave();
  }

  abstract moved(bytes: number): void;
  abstract blocked(): void;
  abstract unblocked(): void;
  abstract ended(): void;
}

/** Its clock runs while the client is to send: not while the store takes nothing, and not after the last byte. */
export class Upload extends Transfer {
  private readonly deadline: Deadline | undefined;
  private clock: MonitoredTransfer | undefined;
  private isComplete = false;
  private movedAtMs = performance.now();

  /** Without `timeoutMs` it may take as long as its rate is no lower than the least. */
  constructor(
    timeoutMs: number | undefined,
    private readonly rate: MinimumRateMonitor,
    private readonly onTooSlow: () => void,
  ) {
    super();
    if (timeoutMs !== undefined)
      this.deadline = startDeadline(timeoutMs, () => this.cutOff('The upload took too long'));
  }

  /** The body is wanted from now on. */
  start(): void {
    this.movedAtMs = performance.now();
    this.clock = this.rate.start(() => this.cutOff('The upload is too slow'));
  }

  /** Whether it is the client that is waited for. */
  get isClientAwaited(): boolean {
    return this.clock !== undefined && !this.clock.isPaused && !this.isComplete;
  }

  /** Whether the client has sent nothing for a while although it could. */
  get isStalled(): boolean {
    return this.isClientAwaited && performance.now() - this.movedAtMs > stalledAfterMs;
  }

  /** Ends it because nothing has moved on the client's connection for too long. */
  stalled(): void {
    if (this.isClientAwaited) this.cancel(stalledUpload());
  }

  private cutOff(message: string): void {
    this.onTooSlow();
    this.cancel(uploadTimedOut(message));
  }

  moved(bytes: number): void {
    this.movedAtMs = performance.now();
    this.clock?.add(bytes);
    this.place?.touch();
  }

  blocked(): void {
    this.clock?.pause();
  }

  unblocked(): void {
    this.movedAtMs = performance.now();
    this.clock?.resume();
    this.place?.touch();
  }

  /** The whole body is here and is being committed: to refuse it now would deny what may be done already. */
  ended(): void {
    this.isComplete = true;
    this.clock?.stop();
    if (this.deadline) cancelDeadline(this.deadline);
    this.place?.pin();
  }

  override end(): void {
    this.ended();
    super.end();
  }
}

/** Its clock runs while the client is to read. What the client has taken is known once it has taken all there was. */
export class Download extends Transfer {
  private readonly clock: MonitoredTransfer;
  private givenBytes = 0;

  constructor(rate: MinimumRateMonitor, onTooSlow: () => void) {
    super();
    this.clock = rate.start(() => {
      onTooSlow();
      this.cancel(new ServiceError('CANCELLED', 'CANCELLED', 'The reader is too slow'));
    });
    this.clock.pause();
  }

  moved(bytes: number): void {
    this.givenBytes += bytes;
    this.place?.touch();
  }

  blocked(): void {
    this.clock.resume();
  }

  unblocked(): void {
    this.clock.add(this.givenBytes);
    this.givenBytes = 0;
    this.clock.pause();
    this.place?.touch();
  }

  /** There is no more to give, but perhaps some to be taken. */
  ended(): void {
    this.clock.resume();
  }

  override end(): void {
    this.clock.stop();
    super.end();
  }
}

export function stalledUpload(): ServiceError {
  return uploadTimedOut('Nothing more of the upload came for too long');
}

function uploadTimedOut(message: string): ServiceError {
  return new ServiceError('DEADLINE_EXCEEDED', 'REQUEST_TIMEOUT', message);
}
