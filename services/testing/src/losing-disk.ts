import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { mkdir, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describeUnless } from './describe-unless';

const run = promisify(execFile);

/** The file system writes nothing by itself for so many seconds, longer than any test. */
const mountOptions = 'loop,commit=3600';

/** Why no such disk can be had here; undefined where one can. Only root may mount. */
function whyNone(): string | undefined {
  const folder = mkdtempSync(join(tmpdir(), 'granary-loop-'));
  const image = join(folder, 'image');
  try {
    execFileSync('truncate', ['-s', '4M', image], { stdio: 'pipe' });
    execFileSync('mkfs.ext4', ['-q', '-F', image], { stdio: 'pipe' });
    execFileSync('mkdir', [join(folder, 'disk')]);
    execFileSync('mount', ['-o', mountOptions, image, join(folder, 'disk')], { stdio: 'pipe' });
    execFileSync('umount', [join(folder, 'disk')], { stdio: 'pipe' });
    return undefined;
  } catch (error) {
    return (error as Error).message.trim();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Returns Jest's `describe` for suites that cut the power of a disk, see `describeUnless`. */
export const describeWithLosingDisk = <D extends { skip: unknown }>(describe: D): D | D['skip'] =>
  describeUnless(describe, whyNone(), 'no loss of power is tested, for no image can be mounted');

/**
 * An ext4 file system in an image, which stands for a disk: the image has what was flushed to it. What only the memory
 * of the kernel has is lost with the power.
 */
export class LosingDisk {
  private constructor(
    private readonly folder: string,
    /** The directory at which it is mounted. */
    readonly directory: string,
  ) {}

  static async make(sizeBytes: number): Promise<LosingDisk> {
    const folder = await mkdtemp(join(tmpdir(), 'granary-disk-'));
    const image = join(folder, 'image');
    await writeFile(image, '');
    await truncate(image, sizeBytes);
    await run('mkfs.ext4', ['-q', '-F', image]);
    return LosingDisk.mount(folder);
  }

  /** The disk as it comes up after a cut of its power now, beside this one. What writes to this one must have ended. */
  async afterPowerCut(): Promise<LosingDisk> {
    const folder = await mkdtemp(join(tmpdir(), 'granary-disk-'));
    // Holes stay holes.
    await run('cp', ['--sparse=always', join(this.folder, 'image'), join(folder, 'image')]);
    return LosingDisk.mount(folder);
  }

  /** Unmounts the disk and removes it. */
  async remove(): Promise<void> {
    await run('umount', [this.directory]);
    await rm(this.folder, { recursive: true, force: true });
  }

  private static async mount(folder: string): Promise<LosingDisk> {
    const directory = join(folder, 'disk');
    await mkdir(directory);
    await run('mount', ['-o', mountOptions, join(folder, 'image'), directory]);
    await run('chmod', ['755', folder, directory]);
    return new LosingDisk(folder, directory);
  }
}
