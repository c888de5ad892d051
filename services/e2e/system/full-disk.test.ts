import { writeFileSync } from 'node:fs';
import { appendFile, mkdir, readFile, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { describeWithSmallDisk, mountSmallDisk, type SmallDisk } from '@granary/testing/small-disk';
import { choosePorts } from '@granary/local/ports';
import { randomText, send, type Answer, type ListAnswer } from '../support/granary';
import { endAllProcesses, OwnGranary } from '../support/own-process';

const mebibyte = 1024 * 1024;
const diskBytes = 500 * mebibyte;
/** What lies on the disk beside Granary, and is removed to make room. */
const ballastBytes = 150 * mebibyte;

interface Part {
  status: string;
  message?: string;
}
interface Health {
  status: string;
  checks: { data: { storage: Part } & Part; blobs: { object_store: Part } & Part };
}
interface Line {
  level: number;
  msg: string;
}

describeWithSmallDisk(describe)('a full disk', () => {
  let disk: SmallDisk;
  let dataDir: string;
  let granary: OwnGranary;
  let metricsAddress: string;
  let ballast: string;
  let stored = 0;
  beforeAll(async () => {
    disk = await mountSmallDisk(diskBytes);
    dataDir = join(disk.directory, 'data');
    ballast = join(disk.directory, 'ballast');
    await mkdir(dataDir);
    writeFileSync(ballast, Buffer.alloc(ballastBytes, 1));
    const [port = 0] = await choosePorts(1);
    metricsAddress = `127.0.0.1:${port}`;
    granary = await OwnGranary.start(dataDir, { LOG_LEVEL: 'warn', METRICS_LISTEN: metricsAddress });
  });
  afterAll(async () => {
    await granary.end('SIGTERM');
    await endAllProcesses();
    await disk.unmount();
  });

  const call = <T = Record<string, unknown>>(method: string, path: string, body?: object | Buffer) =>
    send<T>(granary.url, method, path, {
      key: granary.app.key,
      body,
      ...(Buffer.isBuffer(body) ? { headers: { 'content-type': 'image/png' } } : {}),
    });
  const root = () => `${granary.app.appId}::writes`;
  const store = async (count: number) => {
    const data = Array.from({ length: count }, () => ({ padding: randomText(15_000) }));
    const answer = await call('POST', '/store', { root: root(), data });
    if (answer.status === 202) stored += count;
    return answer;
  };
  const upload = () => call('POST', `/api/apps/${granary.app.appId}/blobs/files`, Buffer.alloc(100_000, 7));
  const health = () => call<Health>('GET', '/health');
  const isReady = async () => (await call('GET', '/readyz')).status === 200;
  const total = async () => (await call<ListAnswer<object>>('POST', '/list', { root: root(), limit: 1 })).body.total;
  const freeBytes = async () => {
    const { bavail, bsize } = await statfs(disk.directory);
    return bavail * bsize;
  };
  const isFull = (answer: Answer) => answer.status === 507;
  const logged = () => granary.output.filter((line) => line.startsWith('{')).map((line) => JSON.parse(line) as Line);
  const metrics = async () => (await fetch(`http://${metricsAddress}/metrics`)).text();
  const valueOf = (text: string, series: string) =>
    Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${series} `))
        ?.slice(series.length),
    );

  test('on a full disk writes get 507, log, health and metrics report it once, reads work, and writes recover without a restart', async () => {
    expect((await upload()).status).toBe(202);
    expect((await store(1)).status).toBe(202);
    const copy = { name: 'copy', source_collections: ['writes'], query: { find: { none: 1 } } };
    expect((await call('POST', `/api/apps/${granary.app.appId}/views`, copy)).status).toBe(202);
    const refused = await eventually(async () => {
      const answer = await store(100);
      return isFull(answer) && answer;
    }, 120_000);
    expect(refused.body).toEqual({ error: 'The storage is full', code: 'STORAGE_FULL', details: {} });
    expect(stored).toBeGreaterThan(0);
    for (let n = 0; n < 30; n++) expect((await store(1)).body).toMatchObject({ code: 'STORAGE_FULL' });
    // A checkpoint of Postgres may have made room again, of which not every volume has seen that it was gone.
    await appendFile(ballast, Buffer.alloc(Math.max(0, (await freeBytes()) - 40 * mebibyte), 1));
    await eventually(async () => isFull(await upload()));
    expect((await upload()).body).toMatchObject({ code: 'STORAGE_FULL' });
    const path = (rest: string) => `/api/apps/${granary.app.appId}/${rest}`;
    const growing: Array<[string, string, object?]> = [
      ['POST', path('collections'), { name: 'more' }],
      ['POST', path('indexes'), { name: 'n', collection: 'writes', field_name: 'n', index_type: 'number' }],
      ['POST', path('views'), { name: 'more', source_collections: ['writes'], query: { find: {} } }],
      ['POST', path('views/copy/refresh')],
      ['POST', path('queries'), { name: 'more', source_collection: 'writes', base_query: {} }],
    ];
    for (const args of growing) expect([args, await call(...args)]).toMatchObject([args, { status: 507 }]);
    const unpublished = await call('PUT', path('collections/files'), { access_policy: { read: 'private' } });
    expect(unpublished.status).toBe(200);
    expect((await call('DELETE', path('views/copy'))).status).toBe(200);

    expect(await total()).toBe(stored);
    const ill = await eventually(async () => {
      const answer = await health();
      return answer.body.checks.blobs.object_store.status === 'unhealthy' && answer;
    });
    expect(ill.status).toBe(503);
    const why = { status: 'unhealthy', message: expect.stringContaining('is full') as string };
    expect(ill.body.checks.data).toMatchObject({ status: 'unhealthy', storage: why });
    expect(ill.body.checks.blobs).toMatchObject({ status: 'unhealthy', object_store: why });
    expect(await isReady()).toBe(true);
    const told = await metrics();
    expect(valueOf(told, 'granary_storage_full{service="data",volume="database"}')).toBe(1);
    expect(valueOf(told, 'granary_storage_free_bytes{volume="database"}')).toBeLessThan(64 * mebibyte);
    expect(valueOf(told, 'granary_storage_size_bytes{volume="objects"}')).toBe(diskBytes);
    expect(valueOf(told, 'granary_database_bytes{service="data"}')).toBeGreaterThan(mebibyte);
    expect(logged().filter(({ level }) => level >= 50)).toEqual([
      expect.objectContaining({ level: 50, msg: 'the storage is full, writes are refused' }),
    ]);

    await rm(ballast);
    await eventually(async () => (await store(1)).status === 202);
    await eventually(async () => (await upload()).status === 202);
    await eventually(async () => (await health()).body.status === 'healthy');
    expect(await total()).toBe(stored);
    expect(logged().filter(({ msg }) => msg === 'there is room in the storage again')).toHaveLength(1);
  });

  /** Takes all that is left. */
  const fill = async () => {
    const filler = join(disk.directory, 'filler');
    for (const size of [mebibyte, 4096]) {
      const isEnd = () =>
        appendFile(filler, Buffer.alloc(size, 2)).then(
          () => false,
          () => true,
        );
      while (!(await isEnd()));
    }
    return filler;
  };
  /** As Postgres's superuser, so that nothing refuses the write before Postgres does. */
  const switchLog = async () => {
    const pidFile = await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8').catch(() => '');
    const password = (await readFile(join(dataDir, 'postgres-password'), 'utf8')).trim();
    const client = new Client({
      host: '127.0.0.1',
      port: Number(pidFile.split('\n')[3]),
      user: 'postgres',
      password,
      database: 'postgres',
    });
    client.on('error', () => {});
    try {
      await client.connect();
      await client.query(`select pg_logical_emit_message(true, 'test', 'x'), pg_switch_wal()`);
    } catch {
      // It is what this is for, or Postgres is not there at the moment.
    } finally {
      await client.end().catch(() => {});
    }
  };

  test('a disk without space for the WAL, on which Postgres crashes and cannot start, does not end the process: it recovers by itself', async () => {
    const lines = (text: string) => logged().filter(({ msg }) => msg.startsWith(text)).length;
    await store(1);
    const filler = await fill();
    await eventually(async () => {
      await switchLog();
      return lines('lost Postgres') > 0;
    });
    await eventually(() => lines('Postgres cannot start because the disk is full') > 0, 60_000);

    expect((await call('GET', '/livez')).status).toBe(200);

    await rm(filler);
    await eventually(async () => (await store(1)).status === 202, 60_000);
    await eventually(async () => (await health()).body.status === 'healthy');
    expect(await total()).toBe(stored);
  });
});
