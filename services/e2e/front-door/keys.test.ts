import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { borrowGranary, newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';

const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT/) as string;
const text = expect.stringMatching(/\S/) as string;

interface MadeKey {
  app_key: string;
  key_id: string;
}

describe.each(transports)('keys (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });

  const make = (body: object, key = app.key) =>
    send<MadeKey & Record<string, unknown>>(granary.url, 'POST', `${path}/regenerate-key`, { key, body });
  const list = async () => {
    const answer = await app.call<{ keys: Array<{ key_id: string; name: string }> }>('GET', `${path}/keys`);
    expect(answer.status).toBe(200);
    return answer;
  };
  const statusWith = async (key: string) => (await send(granary.url, 'GET', `${path}/collections`, { key })).status;

  test('a key is shown once, and listed without its secret', async () => {
    const pay_limits = {
      allowed_target_apps: ['other-app'],
      expires_at: '2030-01-01T00:00:00Z',
      max_payment_per_tx: 1_000,
      spend_allowance: Number.MAX_SAFE_INTEGER,
    };
    const made = await make({ name: 'agent', permissions: ['Read', 'Pay'], pay_limits });
    expect(made.status).toBe(200);
    const { app_key: secret, ...shown } = made.body;
    expect(secret).toMatch(/^app_[A-Za-z0-9_-]{40,}$/);
    expect(shown).toEqual({
      app_id: app.appId,
      key_id: text,
      name: 'agent',
      permissions: expect.arrayContaining(['Read', 'Pay']) as string[],
      pay_limits,
      last_four: secret.slice(-4),
      created_at: time,
    });
    const listed = await list();
    const { app_id, ...key } = shown;
    expect(listed.body).toMatchObject({ app_id, keys: expect.arrayContaining([key]) as object[] });
    expect(listed.body.keys.map(({ name }) => name).sort()).toEqual(['agent', 'default']);
    for (const hidden of [secret, app.key, secret.slice(4, 24), app.key.slice(4, 24)]) {
      expect(listed.text).not.toContain(hidden);
    }
    const unlimited = await make({ name: 'free agent', permissions: ['Pay'], pay_limits: {} });
    expect(unlimited.body['pay_limits']).toEqual({
      allowed_target_apps: null,
      expires_at: null,
      max_payment_per_tx: null,
      spend_allowance: null,
    });
  });

  test('a key of the same name replaces the previous one completely', async () => {
    const first = (await make({ name: 'web', permissions: ['Read'] })).body;
    expect(await statusWith(first.app_key)).toBe(200);
    const second = (await make({ name: 'web', permissions: ['Write'] })).body;
    expect(second.app_key).not.toBe(first.app_key);
    expect(await eventually(async () => (await statusWith(first.app_key)) === 401)).toBe(true);
    expect(await statusWith(second.app_key)).toBe(403);
    const { keys } = (await list()).body;
    expect(keys.filter(({ name }) => name === 'web').map(({ key_id }) => key_id)).toEqual([second.key_id]);
  });

  test('without a name the first key is replaced, also by the operator', async () => {
    const answer = await send<MadeKey>(granary.url, 'POST', `${path}/regenerate-key`, {
      headers: { 'x-operator-key': operatorKey },
      body: { permissions: ['Admin', 'Read', 'Write'] },
    });
    expect(answer).toMatchObject({ status: 200, body: { name: 'default' } });
    expect(await eventually(async () => (await statusWith(app.key)) === 401)).toBe(true);
    expect(await statusWith(answer.body.app_key)).toBe(200);
  });

  test('a revoked key stops working within a second, although it is in constant use', async () => {
    const { app_key: key, key_id: id } = (await make({ name: 'short', permissions: ['Read'] })).body;
    expect(await statusWith(key)).toBe(200);
    const revoked = await app.call('DELETE', `${path}/keys/${id}`);
    const revokedAtMs = Date.now();
    expect(revoked).toMatchObject({ status: 200, body: { success: true, message: text } });
    // Whatever was asked later than a second after the revocation must be refused; earlier ones may go either way.
    const asked: Array<{ afterMs: number; status: number }> = [];
    await eventually(async () => {
      const afterMs = Date.now() - revokedAtMs;
      asked.push({ afterMs, status: await statusWith(key) });
      return afterMs > 1_000;
    });
    expect(asked.filter(({ afterMs, status }) => afterMs > 1_000 && status !== 401)).toEqual([]);
    expect(asked.at(-1)!.status).toBe(401);
    expect(await app.call('DELETE', `${path}/keys/${id}`)).toMatchObject({
      status: 404,
      body: { code: 'KEY_NOT_FOUND' },
    });
    expect((await list()).text).not.toContain(id);
  });

  test('a key of another app cannot be revoked', async () => {
    const other = await newApp(granary);
    const { keys } = (await other.call<{ keys: Array<{ key_id: string }> }>('GET', `/api/apps/${other.appId}/keys`))
      .body;
    const refused = await app.call('DELETE', `${path}/keys/${keys[0]!.key_id}`);
    expect(refused).toMatchObject({ status: 404, body: { code: 'KEY_NOT_FOUND' } });
    expect((await other.call('GET', `/api/apps/${other.appId}/keys`)).status).toBe(200);
  });

  test('of keys of one name created by 20 concurrent callers one works', async () => {
    const name = randomUUID();
    const made = await Promise.all(Array.from({ length: 20 }, () => make({ name, permissions: ['Read'] })));
    expect(made.map(({ status }) => status)).toEqual(Array(20).fill(200));
    const { keys } = (await list()).body;
    const [left, ...more] = keys.filter((key) => key.name === name);
    expect(more).toEqual([]);
    for (const { body } of made) {
      expect(await statusWith(body.app_key)).toBe(body.key_id === left!.key_id ? 200 : 401);
    }
  });

  test('secrets are not stored', async () => {
    const client = new Client({ connectionString: granary.databaseUrls.data });
    await client.connect();
    try {
      const { rows } = await client.query<{ line: string }>('select k::text as line from app_key k');
      expect(rows.length).toBeGreaterThan(0);
      const lines = rows.map(({ line }) => line).join('\n');
      expect(lines).toContain(app.key.slice(-4));
      expect(lines).not.toContain(app.key.slice(4, 24));
    } finally {
      await client.end();
    }
  });
});
