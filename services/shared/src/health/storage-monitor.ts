import { statfs } from 'node:fs/promises';
import { ServiceError } from '../errors';
import type { Logger } from '../logger';
import { addSource, gauges, type Sample } from '../telemetry/metrics';

/** A store of data: the database of a service, or the object store. */
export type Volume = 'database' | 'objects';

export const storageFullReason = 'STORAGE_FULL';

const monitors = new Set<StorageMonitor>();
/** The monitors whose volume is full. One log line covers all volumes of a process, which are often on one disk. */
const full = new Set<StorageMonitor>();

/** The error of a write for which there was no space. Makes the monitors of the volume check it. */
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
  /** Allocates some space and frees it again. Throws STORAGE_FULL if there is none. */
  probe: () => Promise<void>;
  /** The directory of a volume on this machine; then writes are refused before the disk is full. */
  directory?: string | undefined;
  /** Space that is reserved for what must continue while writes are refused. */
  reserveBytes: number;
}

const watchEveryMs = 500;
const probeEveryMs = 1_000;
const message = 'is full: writes are refused until there is room';

const fullGauge = gauges({
  name: 'granary_storage_full',
  help: '1 while writes are refused because storage is full, else 0.',
  labels: ['service', 'volume'],
});

/** Detects a full volume by the free bytes of a local disk and by writes that fail. */
export class StorageMonitor {
  readonly volume: Volume;
  private isSuspected = false;
  private checking: Promise<void> | undefined;
  private watching: NodeJS.Timeout | undefined;
  private readonly unobserve: () => void;

  constructor(private readonly options: StorageOptions) {
    this.volume = options.volume;
    this.unobserve = addSource({ families: sizeFamilies, collect: () => this.sizes() });
    fullGauge.with(options.service, options.volume).set(0);
    monitors.add(this);
    if (options.directory !== undefined) this.watch(watchEveryMs);
  }

  get isFull(): boolean {
    return full.has(this);
  }

  /** Throws STORAGE_FULL while the volume is full. */
  refuseWhenFull(): void {
    if (this.isFull) throw new ServiceError('RESOURCE_EXHAUSTED', storageFullReason, 'The storage is full');
  }

  /** The state of the volume, for health. */
  finding(): { status: 'HEALTHY' | 'UNHEALTHY'; message?: string; servesReads?: boolean } {
    return this.isFull ? { status: 'UNHEALTHY', message, servesReads: true } : { status: 'HEALTHY' };
  }

  /** A write has failed because there was no space. */
  suspect(): void {
    if (this.isFull || this.isSuspected) return;
    this.isSuspected = true;
    void this.check();
  }

  /** Resolves when no check is under way any more. */
  async stop(): Promise<void> {
    clearInterval(this.watching);
    monitors.delete(this);
    this.unobserve();
    await this.checking;
    this.settle(false, undefined);
  }

  private watch(everyMs: number): void {
    clearInterval(this.watching);
    this.watching = setInterval(() => void this.check(), everyMs).unref();
  }

  private check(): Promise<void> {
    return (this.checking ??= this.checkOnce().finally(() => {
      this.checking = undefined;
      // Writes that failed meanwhile are forgotten, too: the next write that fails starts another check.
      this.isSuspected = false;
    }));
  }

  private async checkOnce(): Promise<void> {
    const { directory, reserveBytes, probe } = this.options;
    const space = directory === undefined ? undefined : await spaceOf(directory);
    // Twice the reserve (hysteresis), so that it does not change with every write.
    if (space && space.freeBytes < (this.isFull ? 2 : 1) * reserveBytes) return this.settle(true, space.freeBytes);
    if (!this.isFull && !this.isSuspected) return;
    try {
      await probe();
      this.settle(false, space?.freeBytes);
    } catch (error) {
      // Other errors tell nothing about space; then the free bytes of a local disk decide.
      if (isStorageFull(error)) this.settle(true, space?.freeBytes);
      else if (space) this.settle(false, space.freeBytes);
    }
  }

  private settle(isFull: boolean, freeBytes: number | undefined): void {
    if (isFull === this.isFull || (isFull && !monitors.has(this))) return;
    const { service, volume, log, directory } = this.options;
    fullGauge.with(service, volume).set(isFull ? 1 : 0);
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

/** Undefined if it cannot be read. */
async function spaceOf(directory: string): Promise<{ freeBytes: number; sizeBytes: number } | undefined> {
  const stats = await statfs(directory).catch(() => undefined);
  return stats && { freeBytes: stats.bavail * stats.bsize, sizeBytes: stats.blocks * stats.bsize };
}
