import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describeUnless } from './describe-unless';

const run = promisify(execFile);

const mountArguments = (sizeBytes: number, directory: string) => [
  '-t',
  'tmpfs',
  '-o',
  `size=${sizeBytes},mode=755`,
  'tmpfs',
  directory,
];

/** Why no small disk can be had here; undefined where one can. Only root may mount. */
function whyNone(): string | undefined {
  const directory = mkdtempSync(join(tmpdir(), 'granary-mount-'));
  try {
    execFileSync('mount', mountArguments(1024 * 1024, directory), { stdio: 'pipe' });
    execFileSync('umount', [directory], { stdio: 'pipe' });
    return undefined;
  } catch (error) {
    return (error as Error).message.trim();
  } finally {
    rmdirSync(directory);
  }
}

/** Returns Jest's `describe` for suites that fill a disk, see `describeUnless`. */
export const describeWithSmallDisk = <D extends { skip: unknown }>(describe: D): D | D['skip'] =>
  describeUnless(describe, whyNone(), 'nothing about a full disk is tested, for none can be mounted');

export interface SmallDisk {
  directory: string;
  /** Unmounts the disk; called only once nobody uses it. */
  unmount(): Promise<void>;
}

/** A file system in memory of so many bytes. */
export async function mountSmallDisk(sizeBytes: number): Promise<SmallDisk> {
  const directory = mkdtempSync(join(tmpdir(), 'granary-disk-'));
  await run('mount', mountArguments(sizeBytes, directory));
  return {
    directory,
    unmount: async () => {
      await run('umount', ['-l', directory]);
      await rmdir(directory);
    },
  };
}
