import { mkdtemp, rm, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { newTicket } from '@granary/shared/ids';
import { createLogger } from '@granary/shared/logger';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { createAuthority } from '@granary/testing/certificates';
import { serviceDatabase } from '@granary/testing/service-database';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { dataConfig } from '../src/config';
import { dataSchema } from '../src/service';
import { newApp, startDataService, storeRequest, type App, type DataService } from './support/data-service';
import { VaultServer } from './support/vault-server';

/**
 * How long a start may wait for each answer of a Vault, which one of this process gives at once unless it is silent.
 */
const vaultTimeoutMs = limitMs(500);

describe('a root key in Vault', () => {
  let directory: string;
  let databaseUrl: string;
  let pool: Pool;
  let vault: VaultServer;
  let settings: Record<string, string>;
  let keyName: string;
  let keys = 0;
  const running: DataService[] = [];
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'granary-vault-'));
    ({ url: databaseUrl } = await serviceDatabase(dataSchema));
    pool = createPool({ url: databaseUrl, size: 1, applicationName: 'test', log: createLogger('test', 'silent') });
    vault = new VaultServer();
    // This process keeps root keys by their names.
    keyName = `granary-${(keys += 1)}`;
    vault.addKey(keyName);
    settings = {
      ENCRYPTION_VAULT_URL: await vault.start(),
      ENCRYPTION_VAULT_KEY: keyName,
      ENCRYPTION_VAULT_TOKEN_FILE: join(directory, 'token'),
      ENCRYPTION_VAULT_TIMEOUT_MS: String(vaultTimeoutMs),
    };
    await writeToken(vault.token);
  });
  afterEach(async () => {
    await stop();
    await pool.end();
    await vault.stop();
    await rm(directory, { recursive: true, force: true });
  });

  const writeToken = (token: string) => writeFile(join(directory, 'token'), `${token}\n`);
  const start = async (more: Record<string, string> = settings) => {
    const service = await startDataService(databaseUrl, more);
    running.push(service);
    return service;
  };
  const stop = async () => {
    for (const service of running.splice(0)) await service.stop();
  };
  const seedFile = () => ({ ENCRYPTION_KEY_FILE: join(directory, 'seed'), ENCRYPTION_KEY_FILE_CREATE: 'true' });
  const oldSeedFile = () => ({ ENCRYPTION_OLD_KEY_FILE: join(directory, 'seed') });
  const encrypt = (service: DataService, app: App, fieldName = 'email') =>
    service.methods.createIndex({
      appId: app.appId,
      appNumber: app.number.toString(),
      name: `by_${fieldName}`,
      collection: 'people',
      fieldName,
      fields: [],
      indexType: 'encrypted',
      unique: false,
      ticketId: '',
      isPaid: true,
    });
  const store = (service: DataService, app: App, id = 'a') =>
    service.methods.store(storeRequest(app, 'people', [{ id, email: 'x' }]));
  const read = async (service: DataService, app: App, id = 'a') =>
    (await service.methods.getDocument({ appId: app.appId, collection: 'people', id })).json.toString();
  const document = (id = 'a') => `{"id":"${id}","email":"x"}`;
  const wrapped = async () =>
    (
      await pool.query<{ id: string; text: string }>(
        `select root_key_id as id, encode(wrapped, 'escape') as text from data_key order by app_number, version`,
      )
    ).rows;
  /** An app with an encrypted document, of a service that has been stopped. */
  const appOf = async (configured: Record<string, string>) => {
    const service = await start(configured);
    const app = await newApp(service);
    await encrypt(service, app);
    await store(service, app);
    await stop();
    return app;
  };
  const unavailable = { code: 'UNAVAILABLE', reason: 'ENCRYPTION_UNAVAILABLE' };

  test('wraps data keys, which are stored with its name, and unwraps them after a restart', async () => {
    const app = await appOf(settings);
    const keyId = `vault:transit/${keyName}`;
    expect(await wrapped()).toEqual([{ id: keyId, text: expect.stringMatching(/^vault:v1:/) as string }]);
    const again = await start();
    expect(await read(again, app)).toBe(document());
    const ticketId = newTicket('j', app.number);
    expect(await again.methods.rotateDataKey({ appId: app.appId, ticketId })).toMatchObject({ ticketId });
    expect((await wrapped()).map(({ id }) => id)).toEqual([keyId, keyId]);
  });

  test('a key that derives others gets the place of each data key as its context', async () => {
    vault.addKey(keyName, { derived: true });
    const app = await appOf(settings);
    expect(await read(await start(), app)).toBe(document());
  });

  test('a data key that was moved to another app is not unwrapped', async () => {
    const service = await start();
    const [one, two] = [await newApp(service), await newApp(service)];
    for (const app of [one, two]) {
      await encrypt(service, app);
      await store(service, app);
    }
    await stop();
    await pool.query(
      `update data_key k set wrapped = o.wrapped from data_key o where o.app_number = $1 and k.app_number = $2`,
      [one.number, two.number],
    );
    const again = await start();
    expect(await read(again, one)).toBe(document());
    await expect(read(again, two)).rejects.toMatchObject(unavailable);
  });

  test('the token is read again for each request, and the namespace is sent', async () => {
    vault.namespace = 'team/a';
    const configured = { ...settings, ENCRYPTION_VAULT_NAMESPACE: 'team/a' };
    const service = await start(configured);
    vault.token = 'hvs.renewed';
    await expect(encrypt(service, await newApp(service))).rejects.toMatchObject(unavailable);
    await writeToken(vault.token);
    const app = await newApp(service);
    await encrypt(service, app);
    await store(service, app);
    expect(await wrapped()).toEqual([expect.objectContaining({ id: `vault:team/a/transit/${keyName}` })]);
  });

  test('requests go over TLS, to a server that the given authority has certified only', async () => {
    const authority = createAuthority();
    const secure = new VaultServer(authority.issue());
    try {
      secure.addKey(keyName);
      const url = await secure.start();
      const caFile = join(directory, 'ca.crt');
      await writeFile(caFile, authority.cert);
      const configured = { ...settings, ENCRYPTION_VAULT_URL: url, ENCRYPTION_VAULT_CA_FILE: caFile };
      const app = await appOf(configured);
      expect(await read(await start(configured), app)).toBe(document());
      await writeFile(caFile, createAuthority('another').cert);
      await expect(start(configured)).rejects.toMatchObject({ name: 'NotAvailableError' });
    } finally {
      await secure.stop();
    }
  });

  test('a request that fails is repeated; at the third failure it is given up', async () => {
    const service = await start();
    const app = await newApp(service);
    vault.failing = 2;
    await encrypt(service, app);
    vault.failing = 3;
    await expect(encrypt(service, await newApp(service))).rejects.toMatchObject(unavailable);
    expect(vault.failing).toBe(0);
  });

  test('while Vault is away what is open is read and written, and the rest is 503 until it is back', async () => {
    const [app, other] = [await appOf(settings), await appOf(settings)];
    const service = await start();
    expect(await read(service, app)).toBe(document());
    vault.isSealed = true;
    await store(service, app, 'b');
    expect(await read(service, app, 'b')).toBe(document('b'));
    await expect(read(service, other)).rejects.toMatchObject(unavailable);
    await expect(store(service, other)).rejects.toMatchObject(unavailable);
    // What needs no value works without keys.
    await service.methods.store(storeRequest(other, 'others', [{ id: 'a' }]));
    vault.isSealed = false;
    await eventually(async () => (await read(service, other).catch(() => '')) === document());
  });

  test('a Vault that does not answer holds up no lock of the app', async () => {
    const service = await start();
    const app = await newApp(service);
    vault.isSilent = true;
    const asked = encrypt(service, app).catch((error: unknown) => error);
    await eventually(async () => vault.requests.length > 5);
    await service.methods.store(storeRequest(app, 'others', [{ id: 'a' }]));
    expect(await asked).toMatchObject(unavailable);
  });

  test.each<[string, () => void | Promise<void>, string, RegExp]>([
    ['sealed', () => void (vault.isSealed = true), 'NotAvailableError', /503 \(Vault is sealed\)/],
    [
      'silent',
      () => void (vault.isSilent = true),
      'NotAvailableError',
      new RegExp(`no answer within ${vaultTimeoutMs} ms`),
    ],
    ['without a token', () => unlink(join(directory, 'token')), 'NotAvailableError', /token of Vault cannot be read/],
    ['with another token', () => writeToken('hvs.other'), 'StartError', /403 \(permission denied\).*has expired/],
    ['without the right to read', () => void vault.denied.add('keys'), 'StartError', /lacks a right/],
    ['without the right to encrypt', () => void vault.denied.add('encrypt'), 'StartError', /lacks a right/],
    ['without the right to decrypt', () => void vault.denied.add('decrypt'), 'StartError', /lacks a right/],
    ['without the key', () => void vault.keys.clear(), 'StartError', /answers 404.*make the key in Vault/],
    ['with a key for signing', () => vault.addKey(keyName, { type: 'ed25519' }), 'StartError', /has the type ed25519/],
    ['of an old release', () => void (vault.ignoresAssociatedData = true), 'StartError', /Vault 1\.13 or newer/],
  ])('a Vault %s ends the start with what to do', async (_, change, name, message) => {
    await change();
    await expect(start()).rejects.toMatchObject({ name, message: expect.stringMatching(message) as string });
    await expect(start()).rejects.toMatchObject({ message: expect.not.stringContaining('hvs.') as string });
  });

  test('data keys of a file are wrapped by Vault at the start, and by a file again', async () => {
    const app = await appOf(seedFile());
    const [before] = await wrapped();
    await expect(start()).rejects.toThrow(
      /need the key \w{32} of a seed file, but the settings name the key transit\//,
    );
    for (const more of [oldSeedFile(), oldSeedFile(), {}]) {
      expect(await read(await start({ ...settings, ...more }), app)).toBe(document());
      await stop();
    }
    expect((await wrapped())[0]!.id).toBe(`vault:transit/${keyName}`);
    const { ENCRYPTION_VAULT_KEY: old, ...connection } = settings;
    await expect(start(seedFile())).rejects.toThrow(`need the key transit/${keyName} of Vault`);
    await start({ ...connection, ...seedFile(), ENCRYPTION_OLD_VAULT_KEY: old! });
    await stop();
    expect((await wrapped())[0]!.id).toBe(before!.id);
    expect(await read(await start(seedFile()), app)).toBe(document());
  });

  test('a start that fails while it wraps goes on with the next one', async () => {
    const service = await start(seedFile());
    const apps: App[] = [];
    for (let n = 0; n < 12; n += 1) {
      apps.push(await newApp(service));
      await encrypt(service, apps[n]!);
      await store(service, apps[n]!);
    }
    await stop();
    // The key, three probes, and some of twelve.
    vault.remaining = 9;
    const configured = { ...settings, ...oldSeedFile() };
    await expect(start(configured)).rejects.toMatchObject({ name: 'NotAvailableError' });
    expect(new Set((await wrapped()).map(({ id }) => id)).size).toBe(2);
    vault.remaining = undefined;
    const again = await start(configured);
    expect(new Set((await wrapped()).map(({ id }) => id))).toEqual(new Set([`vault:transit/${keyName}`]));
    for (const app of apps) expect(await read(again, app)).toBe(document());
  });

  test('after a rotation in Vault the next start wraps by the new version, and the old one may go', async () => {
    const app = await appOf(settings);
    vault.rotate(keyName);
    await start();
    await stop();
    expect((await wrapped())[0]!.text).toMatch(/^vault:v2:/);
    vault.keys.get(keyName)!.minDecryptionVersion = 2;
    expect(await read(await start(), app)).toBe(document());
  });

  test('a version that Vault does not decrypt any more ends the start', async () => {
    await appOf(settings);
    vault.rotate(keyName);
    vault.keys.get(keyName)!.minDecryptionVersion = 2;
    await expect(start()).rejects.toMatchObject({
      name: 'StartError',
      message: expect.stringContaining('too old') as string,
    });
  });

  test.each<[object, string]>([
    [{ ENCRYPTION_KEY_FILE: 'seed' }, 'ENCRYPTION_VAULT_KEY'],
    [{ ENCRYPTION_OLD_KEY_FILE: 'seed', ENCRYPTION_OLD_VAULT_KEY: 'old' }, 'ENCRYPTION_OLD_VAULT_KEY'],
    [{ ENCRYPTION_VAULT_URL: undefined }, 'ENCRYPTION_VAULT_URL'],
    [{ ENCRYPTION_VAULT_URL: 'http://vault:8200/v1' }, 'ENCRYPTION_VAULT_URL'],
    [{ ENCRYPTION_VAULT_TOKEN_FILE: undefined }, 'ENCRYPTION_VAULT_TOKEN_FILE'],
    [{ ENCRYPTION_VAULT_KEY: 'a/b' }, 'ENCRYPTION_VAULT_KEY'],
    [{ ENCRYPTION_VAULT_MOUNT: '/transit' }, 'ENCRYPTION_VAULT_MOUNT'],
  ])('%j is refused as a value of %s', (more, name) => {
    const environment = { LISTEN: '127.0.0.1:0', DATABASE_URL: databaseUrl, SKILLS_DIRECTORY: directory };
    const result = dataConfig.safeParse({ ...environment, ...settings, ...more });
    expect(result.error?.issues.map(({ path }) => path.join())).toEqual([name]);
  });
});
