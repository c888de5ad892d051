import { mkdtemp, readFile, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { serviceDatabase } from '@granary/testing/service-database';
import { openRootKeyFile } from '../src/encryption-keys/root-key';
import { dataSchema } from '../src/service';
import { newApp, startDataService, storeRequest, type App, type DataService } from './support/data-service';

describe('the root key', () => {
  let directory: string;
  let url: string;
  let file: string;
  const running: DataService[] = [];
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'granary-root-key-'));
    ({ url } = await serviceDatabase(dataSchema));
    file = join(directory, 'keys', 'seed');
  });
  afterEach(async () => {
    for (const service of running.splice(0)) await service.stop();
    await rm(directory, { recursive: true, force: true });
  });

  const start = async (settings: Record<string, string>) => {
    const service = await startDataService(url, settings);
    running.push(service);
    return service;
  };
  const stop = async () => {
    for (const service of running.splice(0)) await service.stop();
  };
  const create = { ENCRYPTION_KEY_FILE_CREATE: 'true' };
  const encrypt = (service: DataService, app: App, more: object = {}) =>
    service.methods.createIndex({
      appId: app.appId,
      appNumber: app.number.toString(),
      name: 'by_email',
      collection: 'people',
      fieldName: 'email',
      fields: [],
      indexType: 'encrypted',
      unique: false,
      ticketId: '',
      isPaid: true,
      ...more,
    });

  test('is made once, for its owner alone, and read again', async () => {
    const service = await start({ ENCRYPTION_KEY_FILE: file, ...create });
    const app = await newApp(service);
    await encrypt(service, app);
    await service.methods.store(storeRequest(app, 'people', [{ id: 'a', email: 'x' }]));
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    const seed = await readFile(file, 'utf8');
    await stop();
    const again = await start({ ENCRYPTION_KEY_FILE: file, ...create });
    expect(await readFile(file, 'utf8')).toBe(seed);
    const read = await again.methods.getDocument({ appId: app.appId, collection: 'people', id: 'a' });
    expect(read.json.toString()).toBe('{"id":"a","email":"x"}');
  });

  test('without one nothing is encrypted, and all else works', async () => {
    const service = await start({});
    const app = await newApp(service);
    await expect(encrypt(service, app)).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      reason: 'ENCRYPTION_UNAVAILABLE',
    });
    await service.methods.store(storeRequest(app, 'people', [{ id: 'a', email: 'x' }]));
  });

  test('a database with data keys starts with no other, nor without, and never gets a new one', async () => {
    const service = await start({ ENCRYPTION_KEY_FILE: file, ...create });
    await encrypt(service, await newApp(service));
    await stop();
    await expect(start({})).rejects.toThrow('ENCRYPTION_KEY_FILE is not set');
    const other = join(directory, 'other');
    await openRootKeyFile(other, { create: true, isNew: true });
    await expect(start({ ENCRYPTION_KEY_FILE: other })).rejects.toThrow('Put the file back from a backup');
    await rename(file, `${file}.away`);
    await expect(start({ ENCRYPTION_KEY_FILE: file, ...create })).rejects.toThrow('cannot be read');
    await rename(`${file}.away`, file);
    await start({ ENCRYPTION_KEY_FILE: file });
  });

  test('another root key takes over, and the old one is not needed any more', async () => {
    const service = await start({ ENCRYPTION_KEY_FILE: file, ...create });
    const app = await newApp(service);
    await encrypt(service, app);
    await service.methods.store(storeRequest(app, 'people', [{ id: 'a', email: 'x' }]));
    await stop();
    const other = join(directory, 'other');
    await openRootKeyFile(other, { create: true, isNew: true });
    const old = { ENCRYPTION_OLD_KEY_FILE: file };
    for (const settings of [old, old, {}]) {
      const next = await start({ ENCRYPTION_KEY_FILE: other, ...settings });
      const read = await next.methods.getDocument({ appId: app.appId, collection: 'people', id: 'a' });
      expect(read.json.toString()).toBe('{"id":"a","email":"x"}');
      await stop();
    }
    await expect(start({ ENCRYPTION_KEY_FILE: file })).rejects.toThrow('Put the file back from a backup');
  });

  test('a refusal for the price leaves nothing behind', async () => {
    const service = await start({ ENCRYPTION_KEY_FILE: file, ...create });
    const app = await newApp(service);
    const refusal = { code: 'FAILED_PRECONDITION', reason: 'PAYMENT_REQUIRED' };
    await expect(encrypt(service, app, { isPaid: false })).rejects.toMatchObject(refusal);
    await service.methods.store(storeRequest(app, 'people', [{ id: 'a', email: 'x' }]));
    const conflict = { code: 'ALREADY_EXISTS', reason: 'ENCRYPTION_CONFLICT' };
    for (const isPaid of [false, true]) await expect(encrypt(service, app, { isPaid })).rejects.toMatchObject(conflict);
  });
});
