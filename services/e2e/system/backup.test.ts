import { execFile } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { eventually, eventuallyHolds } from '@granary/testing/eventually';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { makeBackup } from '@granary/operator/backup/backup';
import { serveObjects } from '@granary/stack/serve-objects';
import { checkBlobs, checkChain, checkCursors, checkDocuments, heldIn, chargedFor, readCursors } from './backup-checks';
import { startSubject, withDatabase, type Subject } from './backup-subject';
import { Traffic } from './backup-traffic';
import { isOnStack, newApp, send, type StoreAnswer } from '../support/granary';
import { endAllProcesses } from '../support/own-process';

const root = join(__dirname, '../../..');
const writesBefore = size({ run: 60, long: 5_000 });
const run = promisify(execFile);

/** The commands of docs/operations/back-up.md, as they are printed there; the first block says where things are. */
async function documentedCommands(): Promise<string[]> {
  const text = await readFile(join(root, 'docs/operations/back-up.md'), 'utf8');
  const [settings, ...commands] = [...text.matchAll(/^```sh\n(.*?)^```$/gms)].map((block) => block[1]!);
  expect(settings!.match(/^[A-Z]+(?==)/gm)).toEqual(['DATA', 'BACKUPS', 'RESTORED']);
  return commands;
}

describe(isOnStack ? 'a backup of a stack' : 'a backup of npm start', () => {
  let folder: string;
  let dirs: Record<'DATA' | 'BACKUPS' | 'RESTORED', string>;
  let traffic: Traffic | undefined;
  const running = new Set<Subject>();
  const start = async (dataDir: string): Promise<Subject> => {
    const subject = await startSubject(dataDir);
    running.add(subject);
    return subject;
  };
  const stop = async (subject: Subject): Promise<void> => {
    running.delete(subject);
    await subject.stop();
  };
  const command = async (text: string): Promise<string> => {
    const env = { ...process.env, ...dirs, NODE_ENV: 'development', npm_lifecycle_event: '' };
    return (await run('bash', ['-euc', text], { cwd: root, env })).stdout;
  };
  const newest = async () =>
    (await readdir(dirs.BACKUPS))
      .filter((name) => name.startsWith('backup-'))
      .sort()
      .at(-1)!;
  const contents = async () =>
    (await readdir(join(dirs.BACKUPS, 'blobs'), { recursive: true })).filter((name) => /[0-9a-f]{64}$/.test(name));

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'granary-backup-'));
    await run('chmod', ['755', folder]);
    dirs = { DATA: join(folder, 'data'), BACKUPS: join(folder, 'backups'), RESTORED: join(folder, 'restored') };
  });
  afterAll(async () => {
    await traffic?.stop().catch(() => {});
    for (const subject of running) await subject.stop();
    await endAllProcesses();
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  });

  test(
    'a backup made while apps write, upload and delete restores one moment completely, and copies only new blobs',
    async () => {
      const [backup, restore] = await documentedCommands();
      const source = await start(dirs.DATA);
      const app = await newApp(source);
      const wallet = await app.call<{ address: string }>('GET', `/api/apps/${app.appId}/wallet`);
      traffic = new Traffic(source.url, app);
      await traffic.more(writesBefore);
      const first = await makeBackup({
        dataDir: dirs.DATA,
        directory: dirs.BACKUPS,
        withoutSeed: false,
        serveObjects,
        say: () => {},
        signal: new AbortController().signal,
      });
      expect(await contents()).toHaveLength(first.copied);

      await traffic.more(writesBefore);
      const before = traffic.acknowledged();
      const printed = await command(backup!);
      const now = traffic.acknowledged();
      await traffic.stop();
      await app.store('documents', [{ id: 'lost' }]);
      const cursors = await readCursors({ ...app, url: source.url });
      const added = (await contents()).length - first.copied;
      expect(added).toBeGreaterThan(0);
      expect(printed).toContain(`blobs: ${added} copied`);
      expect(printed).toMatch(/^\S+backup-\S+Z is complete\.$/m);
      const atTheEnd = await held(dirs.DATA, app.appId);
      await stop(source);

      expect(await command(restore!)).toContain(`${await newest()} is restored to ${dirs.RESTORED}.`);
      const restored = await start(dirs.RESTORED);
      const place = { ...app, url: restored.url };
      const ids = await checkDocuments(place, before);
      // What was asked to be deleted while the backup was made may be there or not.
      const kept = new Map([...before.blobs].filter(([id]) => now.blobs.has(id)));
      expect(await checkBlobs(place, before, kept)).toBeGreaterThanOrEqual(kept.size);
      const height = await withDatabase(dirs.RESTORED, 'data', (data) => checkChain(data, app.appId));

      // The answers of before are given again, and nothing is written twice.
      for (const { key, body, answer } of [...before.writes.values()].slice(-20)) {
        const again = await send<StoreAnswer>(restored.url, 'POST', '/store', {
          key: app.key,
          body,
          headers: { 'idempotency-key': key },
        });
        expect({ status: again.status, body: again.body }).toEqual({ status: 202, body: answer });
        const task = await send(restored.url, 'GET', `/api/tasks/${answer.ticket_id}`, { key: app.key });
        expect(task).toMatchObject({ status: 200, body: { status: 'Completed' } });
      }
      const written = await send<StoreAnswer>(restored.url, 'POST', '/store', {
        key: app.key,
        body: { root: `${app.appId}::documents`, data: [{ id: 'after' }] },
      });
      expect(written.body.results[0]!.celestia_height).toBe(height + 1);
      // The height that has another commit by now counts as lost, too.
      await checkCursors(place, cursors, height);
      const address = await send(restored.url, 'GET', `/api/apps/${app.appId}/wallet`, { key: app.key });
      expect(address.body['address']).toBe(wallet.body.address);

      // Events go on: what finance knows becomes what is there, nothing is put aside, and the epoch is a new one.
      const holdings = await held(dirs.RESTORED, app.appId);
      await eventuallyHolds(
        () => chargedFor(place),
        (charged) => JSON.stringify(charged) === JSON.stringify(holdings),
      );
      expect(ids.size).toBeLessThanOrEqual(atTheEnd.find(({ collection }) => collection === 'documents')!.documents);
      for (const service of ['blobs', 'finance', 'tasks']) {
        const { rows } = await withDatabase(dirs.RESTORED, service, (client) =>
          client.query('select * from dead_letter'),
        );
        expect(rows).toEqual([]);
      }
      const epochs = await withDatabase(dirs.RESTORED, 'data', (client) =>
        client.query('select epoch from outbox_epoch'),
      );
      expect(epochs.rows).toHaveLength(2);
      const health = await eventually(async () => {
        const answer = await send(restored.url, 'GET', '/health');
        return answer.body['status'] === 'healthy' && answer;
      }, 60_000);
      expect(health.status).toBe(200);
    },
    sizedLimitMs(limitMs(300_000)),
  );

  const held = (dataDir: string, appId: string) =>
    withDatabase(dataDir, 'data', (data) => withDatabase(dataDir, 'blobs', (blobs) => heldIn(data, blobs, appId)));
});
