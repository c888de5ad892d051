import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmod, mkdir, mkdtemp, open, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { removalLockKey } from '@granary/blobs/records/removal';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { makeBackup } from '@granary/operator/backup/backup';
import { restoreBackup } from '@granary/operator/backup/restore';
import { withDatabase } from './backup-subject';
import { newApp, operatorKey, type TestApp } from '../support/granary';
import { endAllProcesses, endProcess, OwnGranary, spawnBuilt } from '../support/own-process';

const quiet = { stdio: 'ignore' } as const;
const bytes = Buffer.alloc(200_000, 'blob');
const sha256 = createHash('sha256').update(bytes).digest('hex');
const contentFile = join('blobs', sha256.slice(0, 2), sha256.slice(2, 4), sha256);

describe('backup and restore', () => {
  let folder: string;
  let dataDir: string;
  let granary: OwnGranary;
  let app: TestApp;
  /** A directory with one backup that is good. */
  let backups: string;
  const lines: string[] = [];
  const say = (line: string) => void lines.push(line);
  const signal = new AbortController().signal;
  const backup = (directory: string) => makeBackup({ dataDir, directory, withoutSeed: false, say, signal });
  let count = 0;
  const fresh = (name: string) => join(folder, `${name}-${count++}`);
  const restore = (directory: string, to = fresh('restored'), replace = false) =>
    restoreBackup({ directory, dataDir: to, replace, say, signal });
  const upload = async (body = bytes): Promise<string> => {
    const path = `/api/apps/${app.appId}/blobs/files`;
    const headers = { 'content-type': 'application/octet-stream' };
    const answer = await app.call<{ blob_id: string }>('POST', path, body, headers);
    expect(answer.status).toBe(202);
    return answer.body.blob_id;
  };
  const filesBelow = async (directory: string) =>
    (await readdir(directory, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'granary-backups-'));
    // So that Postgres's user comes through, as root.
    await chmod(folder, 0o755);
    dataDir = join(folder, 'data');
    granary = await OwnGranary.start(dataDir, { OPERATOR_KEY: operatorKey });
    app = await newApp(granary);
    for (const id of ['a', 'b', 'c']) await app.store('documents', [{ id }]);
    await upload();
    backups = join(folder, 'backups');
    await backup(backups);
  });
  afterAll(async () => {
    await granary?.end('SIGTERM');
    await endAllProcesses();
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  });

  test('the bytes of a deleted blob stay until a backup has copied them, and are removed afterwards', async () => {
    const blobId = await upload(Buffer.alloc(10_000, 'held'));
    const objects = join(dataDir, 'objects', 'objects');
    const before = (await filesBelow(objects)).length;
    await withDatabase(dataDir, 'blobs', async (holder) => {
      await holder.query('select pg_advisory_lock($1::bigint)', [removalLockKey]);
      const path = `/api/apps/${app.appId}/blobs/files/${blobId}`;
      expect((await app.call('DELETE', path)).status).toBeLessThan(300);
      expect((await app.call('GET', path)).status).toBe(404);
      expect(await filesBelow(objects)).toHaveLength(before);
    });
    await eventually(async () => (await filesBelow(objects)).length === before - 1);
  });

  test(
    'a restore names what is damaged or missing in a backup, and leaves nothing behind',
    async () => {
      const name = (await readdir(backups)).find((each) => each.startsWith('backup-'))!;
      const wal = (await readdir(join(backups, name, 'wal'))).at(-1)!;
      const flip = async (file: string) => {
        const handle = await open(file, 'r+');
        const { buffer } = await handle.read(Buffer.alloc(1), 0, 1, 50);
        await handle.write(Buffer.from([buffer[0]! ^ 1]), 0, 1, 50);
        await handle.close();
      };
      const damages: Array<[string, (file: string) => Promise<void>, string]> = [
        [join(name, 'postgres.tar'), flip, 'is damaged: its SHA-256 differs'],
        [join(name, 'wal', wal), (file) => writeFile(file, 'short'), 'is damaged: it has 5 bytes instead of 16777216'],
        [join(name, 'apps.ndjson'), flip, 'is damaged: its SHA-256 differs'],
        [join(name, 'files', 'wallet-seed'), (file) => rm(file), 'is missing'],
        [join(name, 'manifest.json'), flip, 'is damaged: its SHA-256 differs'],
        [contentFile, flip, 'is damaged: its SHA-256 differs'],
        [contentFile, (file) => rm(file), 'is missing'],
      ];
      for (const [file, damage, why] of damages) {
        const path = join(backups, file);
        const good = await readFile(path);
        await damage(path);
        const to = fresh('restored');
        await expect(restore(backups, to)).rejects.toThrow(`${path} ${why}.`);
        expect(await readdir(to).catch(() => [])).toEqual([]);
        await writeFile(path, good);
      }
    },
    limitMs(240_000),
  );

  test('a restore names an app with a broken hash chain, with the first wrong link', async () => {
    const other = await newApp(granary);
    for (const id of ['a', 'b', 'c']) await other.store('documents', [{ id }]);
    const table = await withDatabase(dataDir, 'data', async (data) => {
      const { rows } = await data.query<{ number: string }>('select number from application where app_id = $1', [
        other.appId,
      ]);
      return `a_${rows[0]!.number}.commits`;
    });
    const change = (content: string) =>
      withDatabase(dataDir, 'data', async (data) => {
        await data.query(`update ${table} set content_hash = ${content} where height = 2`);
      });
    await change(`content_hash || 'x'`);
    const target = fresh('backups');
    await backup(target);
    await change('substring(content_hash from 1 for 32)');
    await expect(restore(target)).rejects.toThrow(
      `The hash chain of the app ${other.appId} is broken: link 2 does not follow from the link before it.`,
    );
  });

  test(
    'a directory with data is replaced only on request and when it is not in use, and the seed can be left out',
    async () => {
      const used = fresh('used');
      await mkdir(used);
      await writeFile(join(used, 'precious'), 'kept');
      await expect(restore(backups, used)).rejects.toThrow(`${used} is not empty`);
      expect(await readdir(used)).toEqual(['precious']);
      await expect(restore(backups, dataDir, true)).rejects.toThrow(`Granary is running on ${dataDir}`);
      const { movedTo } = await restore(backups, used, true);
      expect(await readFile(join(movedTo!, 'precious'), 'utf8')).toBe('kept');
      expect(await readdir(used)).toEqual(expect.arrayContaining(['objects', 'postgres', 'wallet-seed']));
      // What belongs to the process that ran is not restored.
      for (const name of ['running.json', 'postgres.log']) expect(await readdir(used)).not.toContain(name);
      for (const name of ['wallet-seed', 'postgres-password', 'demo-app.json']) {
        expect((await stat(join(used, name))).mode & 0o777).toBe(0o600);
      }

      // A backup of what does not run: its Postgres is started for that, and stopped.
      const target = fresh('backups');
      const { name } = await makeBackup({ dataDir: used, directory: target, withoutSeed: true, say, signal });
      expect(await readdir(join(used, 'postgres'))).not.toContain('postmaster.pid');
      expect(await readdir(join(target, name, 'files'))).not.toContain('wallet-seed');
      const { dataDir: restored, hasSeed } = await restore(target);
      expect(hasSeed).toBe(false);
      await expect(OwnGranary.start(restored)).rejects.toThrow('it ended with 1 before it was ready');
    },
    limitMs(240_000),
  );

  test('an interrupted backup leaves nothing behind, and the next one removes what a killed one left', async () => {
    const target = fresh('backups');
    const env = { ...process.env, BACKUP_DIR: target, DATA_DIR: dataDir };
    for (const [kill, left] of [
      ['SIGTERM', 0],
      ['SIGKILL', 1],
    ] as const) {
      const child = await spawnBuilt(['operator'], env, ['backup']);
      const incomplete = async () => (await readdir(target).catch(() => [])).filter((each) => /^[.]/.test(each));
      await eventually(async () => (await incomplete()).length > 0);
      await endProcess(child, kill);
      expect(child.exitCode).toBe(kill === 'SIGTERM' ? 1 : null);
      expect(await readdir(target)).not.toContainEqual(expect.stringMatching(/^backup-/));
      expect(await incomplete()).toHaveLength(left);
    }
    const { name } = await backup(target);
    expect((await readdir(target)).sort()).toEqual([name, 'blobs']);
  });

  test('data that cannot be backed up, and a target inside the data, are refused in one sentence', async () => {
    const empty = fresh('empty');
    await mkdir(join(empty, 'docker'), { recursive: true });
    const from = (from: string, directory: string) =>
      makeBackup({ dataDir: from, directory, withoutSeed: false, say, signal });
    await expect(from(empty, backups)).rejects.toThrow(/^The databases of \S+ are in volumes of Docker, [^.]+\.$/);
    await expect(from(fresh('none'), backups)).rejects.toThrow(/^There is no Postgres cluster in \S+; [^.]+\.$/);
    await expect(from(dataDir, join(dataDir, 'backups'))).rejects.toThrow('is inside the data directory');
    await expect(restore(empty)).rejects.toThrow(`There is no backup in ${empty}.`);
  });

  const mounted = mountSmall();
  (mounted ? test : unmounted())(
    'a target that is too small is refused, and on one that becomes full nothing is left behind',
    async () => {
      const target = fresh('small');
      await mkdir(target);
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=60m', 'tmpfs', target]);
      try {
        await expect(backup(target)).rejects.toThrow(
          / is too small: the backup needs about \d+ MiB and \S+ MiB are free\.$/,
        );
        expect(await filesBelow(target)).toEqual([]);
        // Room enough at the beginning, and then something else takes it.
        execFileSync('mount', ['-o', 'remount,size=300m', target]);
        const fill = (line: string) => {
          if (line.startsWith('  databases:'))
            execFileSync('sh', ['-c', `cat /dev/zero > ${target}/other || :`], quiet);
        };
        const failing = makeBackup({ dataDir, directory: target, withoutSeed: false, say: fill, signal });
        await expect(failing).rejects.toThrow(`${target} is full (ENOSPC).`);
        await rm(join(target, 'other'));
        expect(await filesBelow(target)).toEqual([]);
        await backup(target);
      } finally {
        execFileSync('umount', [target]);
      }
    },
  );
});

/** Whether a small file system can be had, for which one must be root and more. */
function mountSmall(): boolean {
  try {
    execFileSync('unshare', ['--mount', 'mount', '-t', 'tmpfs', 'tmpfs', tmpdir()], quiet);
    return true;
  } catch {
    return false;
  }
}

/** Where none can be had the test is skipped, and fails where nothing may be. */
function unmounted(): typeof test.skip {
  if (process.env['REQUIRE_STACK'] === '1') return test;
  console.warn('THE TEST OF A FULL TARGET IS SKIPPED: no tmpfs can be mounted here');
  return test.skip;
}
