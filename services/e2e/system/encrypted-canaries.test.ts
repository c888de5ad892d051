import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { size } from '@granary/testing/size';
import { send, type ListAnswer } from '../support/granary';
import { endAllProcesses, OwnStart } from '../support/own-process';

const run = promisify(execFile);
const canaries = size({ run: 2_000, long: 10_000 });
const perCall = 500;

/** Files below a directory that contain a text; grep ends with 1 where there is none. */
async function filesWith(text: string, directory: string): Promise<string[]> {
  const found = await run('grep', ['-rlaF', '--', text, directory], { maxBuffer: 2 ** 24 }).catch(
    (error: { code?: number; stdout: string }) => {
      if (error.code === 1) return { stdout: '' };
      throw error as unknown as Error;
    },
  );
  return found.stdout.split('\n').filter((line) => line !== '');
}

describe(`${canaries} values of encrypted fields`, () => {
  let dataDir: string;
  let granary: OwnStart;
  const settings = { LOG_LEVEL: 'debug', ENCRYPTED_INDEX_UTIA: '0' };
  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'granary-canaries-'));
    granary = await OwnStart.ready('npm start', dataDir, settings);
  });
  afterAll(async () => {
    await endAllProcesses();
    await rm(dataDir, { recursive: true, force: true });
  });

  const marker = `canary${Date.now().toString(36)}`;
  const plain = `plain${Date.now().toString(36)}`;
  const call = <T = Record<string, unknown>>(method: string, path: string, body?: object, headers = {}) =>
    send<T>(granary.url, method, path, { key: granary.app.key, body, headers });
  const secret = (n: number) => `${marker}-${n}`;
  const last = canaries - 1;

  test('are in no file of the data directory and in no line of the log, after kill -9 either', async () => {
    const { appId } = granary.app;
    const path = `/api/apps/${appId}`;
    const definition = { name: 'by_secret', collection: 'vault', field_name: 'secret', index_type: 'encrypted' };
    expect((await call('POST', `${path}/indexes`, definition)).status).toBe(201);
    const documents = `${path}/collections/vault/documents`;
    for (let from = 0; from < canaries; from += perCall) {
      const data = Array.from({ length: perCall }, (_, n) => ({ id: `${from + n}`, secret: secret(from + n), plain }));
      const headers = { 'idempotency-key': `store-${from}` };
      expect((await call('POST', '/store', { root: `${appId}::vault`, data }, headers)).status).toBe(202);
    }
    // Versions, refusals and reads by all ways.
    expect((await call('PUT', `${documents}/1`, { secret: secret(2) })).status).toBe(200);
    expect((await call('PATCH', `${documents}/2`, { secret: secret(1) })).status).toBe(200);
    expect((await call('PATCH', `${documents}/3`, { secret: [secret(3)] })).status).toBe(422);
    expect((await call('DELETE', `${documents}/4`)).status).toBe(200);
    expect((await call('POST', '/list', { root: `${appId}::vault`, find: { secret: { gt: secret(1) } } })).status).toBe(
      400,
    );
    expect((await call('GET', `${path}/collections/vault/data?secret=${secret(77)}`)).text).toContain(secret(77));
    const operation = {
      operation: 'update',
      collection: 'vault',
      data: { id: '5', n: 1 },
      conditions: { secret: secret(6) },
    };
    expect((await call('POST', `${path}/batch`, { atomic: true, operations: [operation] })).status).toBe(412);
    const upload = await send(granary.url, 'POST', `${path}/blobs/vault`, {
      key: granary.app.key,
      body: Buffer.from('bytes of a blob'),
      headers: { 'content-type': 'text/plain', 'x-blob-metadata': JSON.stringify({ secret: secret(9) }) },
    });
    expect([upload.status, upload.text]).toEqual([202, expect.any(String)]);

    await granary.end('SIGKILL');
    granary = await OwnStart.ready('npm start', dataDir, settings);
    const list = () =>
      call<ListAnswer<{ secret: string }>>('POST', '/list', {
        root: `${appId}::vault`,
        find: { secret: secret(last) },
      });
    expect((await list()).body.records.map((record) => record.secret)).toEqual([secret(last)]);
    const log = granary.output();
    await granary.end('SIGTERM');

    // What is not encrypted is there, so it is looked for in the right place.
    expect((await filesWith(plain, dataDir)).length).toBeGreaterThan(0);
    expect(await filesWith(marker, dataDir)).toEqual([]);
    expect(log).not.toContain(marker);
  });
});
