import { statfs } from 'node:fs/promises';
import { ServiceError } from '../errors';
import type { Logger } from '../logger';
import { addSource, gauges, type Sample } from '../telemetry/metrics';

/** What needs room: the database of a service, or the bytes of blobs. */
export type Volume = 'database' | 'objects';

export const storageFullReason = 'STORAGE_FULL';

const monitors = new Set<StorageMonitor>();
/** Those that are full; one line of the log is for all volumes of a process, which are often on one disk. */
const full = new Set<StorageMonitor>();

/** The error of a write for which there is no room. The monitors of the volume find out whether that lasts. */
export function storageFull(volume: Volume, cause?: unknown): ServiceError {
  for (const monitor of monitors) if (monitor.volume === volume) monitor.suspect();
  return new ServiceError('RESOURCE_EXHAUSTED', storageFullReason, 'The storage is full', { cause });
}

export function isStorageFull(error: unknown): boolean {
  return error instanceof ServiceError && error.reason === storageFullReason;
}

export interface StorageOptions {
  service: string;
  volume: Volume;
  log: Logger;
  /** Takes some room and gives it back. Throws STORAGE_FULL where there is none. */
  probe: () => Promise<void>;
  /** Where the volume is, when it is on this machine; then writes are refused before the disk is quite full. */
  directory?: string | undefined;
  /** Room that is left to what must go on when writes are refused. */
  reserveBytes: number;
}

const watchEveryMs = 500;
const probeEveryMs = 1_000;
const message = 'is full: writes are refused until there is room';

const fullGauge = gauges({
  name: 'granary_storage_full',
  help: 'Whether writes are refused for want of room: 1 or 0.',
  labels: ['service', 'volume'],
});

/** Knows whether there is room for writes: by the free bytes of a local disk, and by writes that failed. */
export class StorageMonitor {
  readonly volume: Volume;
  private isSuspected = false;
  private looking: Promise<void> | undefined;
  private watching: NodeJS.Timeout | undefined;
  private readonly unobserve: () => void;

  constructor(private readonly options: StorageOptions) {
    this.volume = options.volume;
    this.unobserve = addSource({ families: sizeFamilies, collect: () => this.sizes() });
    fullGauge.with(options.service, options.volume).value = 0;
    monitors.add(this);
    if (options.directory !== undefined) this.watch(watchEveryMs);
  }

  get isFull(): boolean {
    return full.has(this);
  }

  /** Throws STORAGE_FULL as long as there is no room. */
  refuseWhenFull(): void {
    if (this.isFull) throw new ServiceError('RESOURCE_EXHAUSTED', storageFullReason, 'The storage is full');
  }

  /** For health. */
  finding(): { status: 'HEALTHY' | 'UNHEALTHY'; message?: string; servesReads?: boolean } {
    return this.isFull ? { status: 'UNHEALTHY', message, servesReads: true } : { status: 'HEALTHY' };
  }

  /** A write has failed for want of room. */
  suspect(): void {
    if (this.isFull || this.isSuspected) return;
    this.isSuspected = true;
    void this.look();
  }

  /** Resolves when nothing is under way any more. */
  async stop(): Promise<void> {
    clearInterval(this.watching);
    monitors.delete(this);
    this.unobserve();
    await this.looking;
    this.settle(false, undefined);
  }

  private watch(everyMs: number): void {
    clearInterval(this.watching);
    this.watching = setInterval(() => void this.look(), everyMs).unref();
  }

  private look(): Promise<void> {
    return (this.looking ??= this.lookOnce().finally(() => {
      this.looking = undefined;
      // Also what failed meanwhile: the next write that fails begins another look.
      this.isSuspected = false;
    }));
  }

  private async lookOnce(): Promise<void> {
    const { directory, reserveBytes, probe } = this.options;
    const space = directory === undefined ? undefined : await spaceOf(directory);
    // Twice the reserve, so that it does not change with every write.
    if (space && space.freeBytes < (this.isFull ? 2 : 1) * reserveBytes) return this.settle(true, space.freeBytes);
    if (!this.isFull && !this.isSuspected) return;
    try {
      await probe();
      this.settle(false, space?.freeBytes);
    } catch (error) {
      // What else is wrong says nothing about room; then a disk that can be seen decides.
      if (isStorageFull(error)) this.settle(true, space?.freeBytes);
      else if (space) this.settle(false, space.freeBytes);
    }
  }

  private settle(isFull: boolean, freeBytes: number | undefined): void {
    if (isFull === this.isFull || (isFull && !monitors.has(this))) return;
    const { service, volume, log, directory } = this.options;
    fullGauge.with(service, volume).value = isFull ? 1 : 0;
    if (isFull) {
      if (full.size === 0) log.error({ volume, freeBytes }, 'the storage is full, writes are refused');
      full.add(this);
      this.watch(probeEveryMs);
      return;
    }
    full.delete(this);
    if (full.size === 0) log.warn({ volume, freeBytes }, 'there is room in the storage again');
    if (directory === undefined) clearInterval(this.watching);
    else if (monitors.has(this)) this.watch(watchEveryMs);
  }

  private async sizes(): Promise<Record<string, Sample[]>> {
    const { directory, volume } = this.options;
    const space = directory === undefined ? undefined : await spaceOf(directory);
    if (!space) return {};
    return {
      granary_storage_free_bytes: [[[volume], space.freeBytes]],
      granary_storage_size_bytes: [[[volume], space.sizeBytes]],
    };
  }
}

const sizeFamilies = [
  {
    name: 'granary_storage_free_bytes',
    help: 'Free bytes of the file system that a volume is on.',
    labels: ['volume'],
    type: 'gauge' as const,
  },
  {
    name: 'granary_storage_size_bytes',
    help: 'Size of the file system that a volume is on.',
    labels: ['volume'],
    type: 'gauge' as const,
  },
];

/** Undefined where it cannot be seen. */
async function spaceOf(directory: string): Promise<{ freeBytes: number; sizeBytes: number } | undefined> {
  const found = await statfs(directory).catch(() => undefined);
  return found && { freeBytes: found.bavail * found.bsize, sizeBytes: found.blocks * found.bsize };
}
