import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { operatorKey, startGranary, type Granary } from '../granary';
import { chart } from './chart';

const run = promisify(execFile);

describe('the script of helm test', () => {
  let granary: Granary;
  let folder: string;
  beforeAll(async () => {
    granary = await startGranary('direct');
    folder = await mkdtemp(path.join(os.tmpdir(), 'granary-smoke-'));
  });
  afterAll(async () => {
    await granary.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const smoke = async (key: string) => {
    const file = path.join(folder, 'key');
    await writeFile(file, key);
    const env = { GATEWAY_URL: granary.url, OPERATOR_KEY_FILE: file };
    return run(process.execPath, [path.join(chart, 'files/smoke.mjs')], { env });
  };

  test('stores and lists a document in an application that it makes and deletes', async () => {
    const { stdout } = await smoke(operatorKey);
    expect(stdout).toMatch(/POST \/store: 202\nPOST \/list: 200\nDELETE \/api\/applications\/\S+: 200\n$/);
    const listed = await fetch(`${granary.url}/api/applications`, { headers: { 'x-operator-key': operatorKey } });
    expect(await listed.json()).toMatchObject({ total: 0 });
  });

  test('fails when a request does', async () => {
    await expect(smoke('the-key-of-someone-else')).rejects.toThrow(/POST \/api\/applications: 40[13]/);
  });
});
