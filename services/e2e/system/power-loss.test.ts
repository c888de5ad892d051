import { readdir, readFile, readlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { useMethod, walSyncMethods, type WalSyncMethod } from '@granary/local/postgres/wal-sync';
import { openSource } from '@granary/operator/backup/source';
import { eventually } from '@granary/testing/eventually';
import { describeWithLosingDisk, LosingDisk } from '@granary/testing/losing-disk';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { endAllProcesses, isRunning, OwnGranary } from '../support/own-process';
import { idsOf, postmasterPid, storedIds, Writing } from './acknowledged-writes';

const cutsOfEach = size({ run: 1, long: 8 });
const seed = seedOf('system/power-loss');
const random = seededRandom(seed);
/** The image grows as it is written. */
const diskBytes = 2 * 1024 ** 3;

/** Ends a Granary and its Postgres at once, so that nothing writes to their disk any more. */
async function killAll(granary: OwnGranary, dataDir: string): Promise<void> {
  const ended = granary.end('SIGKILL');
  await killPostgres(dataDir);
  await ended;
}

/** Ends the Postgres of a data directory, if one is running on it. */
async function killPostgres(dataDir: string): Promise<void> {
  const postmaster = await postmasterPid(dataDir).catch(() => undefined);
  // The id in a left-over file may be that of another process by now.
  const folder = await readlink(`/proc/${postmaster}/cwd`).catch(() => undefined);
  if (postmaster === undefined || folder !== join(dataDir, 'postgres')) return;
  const pids = [postmaster, ...(await childrenOf(postmaster))];
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // A child ends by itself once the first one is gone.
    }
  }
  await eventually(() => !pids.some(isRunning));
}

async function childrenOf(parent: number): Promise<number[]> {
  const pids = (await readdir('/proc')).map(Number).filter((pid) => pid > 0);
  const parents = await Promise.all(pids.map(parentOf));
  return pids.filter((_, index) => parents[index] === parent);
}

async function parentOf(pid: number): Promise<number | undefined> {
  const line = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  const [, parent] = /\) \S (\d+)/.exec(line) ?? [];
  return parent === undefined ? undefined : Number(parent);
}

/** Sets the method of the running Postgres of a data directory. */
async function setMethod(dataDir: string, method: WalSyncMethod): Promise<void> {
  const source = await openSource(dataDir, () => {});
  const client = await source.connect('postgres');
  await useMethod(client, method);
  await client.end();
  await source.stop();
}

describeWithLosingDisk(describe)('a cut of the power in the middle of writes', () => {
  const disks: LosingDisk[] = [];
  const keep = (disk: LosingDisk) => {
    disks.push(disk);
    return disk;
  };
  afterEach(async () => {
    await endAllProcesses();
    for (const disk of disks.splice(0)) {
      await killPostgres(join(disk.directory, 'data'));
      await disk.remove();
    }
  });

  test('takes a file that was written and not flushed', async () => {
    const disk = keep(await LosingDisk.make(64 * 1024 ** 2));
    await writeFile(join(disk.directory, 'flushed'), 'text', { flush: true });
    await writeFile(join(disk.directory, 'written'), 'text');
    const after = keep(await disk.afterPowerCut());
    expect(await readFile(join(after.directory, 'flushed'), 'utf8')).toBe('text');
    expect(await readFile(join(after.directory, 'written'), 'utf8').catch(() => '')).toBe('');
  });

  test.each(walSyncMethods.flatMap((method) => Array.from({ length: cutsOfEach }, (_, cut) => [method, cut] as const)))(
    `with %s every write that was answered is there afterwards, and all of a bulk or nothing (cut %s, seed ${seed})`,
    async (method) => {
      const disk = keep(await LosingDisk.make(diskBytes));
      const dataDir = join(disk.directory, 'data');
      const granary = await OwnGranary.start(dataDir);
      await setMethod(dataDir, method);
      const writing = new Writing(() => granary, method);
      await writing.more(100 + Math.floor(random() * 200));
      await killAll(granary, dataDir);
      const after = keep(await disk.afterPowerCut());
      await writing.stop();

      const again = await OwnGranary.start(join(after.directory, 'data'));
      const ids = await storedIds(again);
      expect(new Set(ids).size).toBe(ids.length);
      const writes = new Set(ids.map((id) => id.split('/')[0]!));
      expect([...writing.acknowledged].filter((id) => !writes.has(id))).toEqual([]);
      expect(ids).toHaveLength([...writes].flatMap(idsOf).length);
      const text = await readFile(join(after.directory, 'data', 'postgres', 'postgresql.auto.conf'), 'utf8');
      expect(text).toContain(`wal_sync_method = '${method}'`);
    },
  );
});
