import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { borrowGranary, newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { newWallet, signedRequest } from '../support/wallet-signing';

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

  test('a key is created under a name that no key has, by Admin or the operator and on both prefixes', async () => {
    const body = { name: 'web', permissions: ['Read'] };
    const first = await app.call<MadeKey>('POST', `${path}/keys`, body);
    expect(first).toMatchObject({ status: 201, body: { ...body, app_id: app.appId, pay_limits: null } });
    expect(await statusWith(first.body.app_key)).toBe(200);
    const headers = { 'x-operator-key': operatorKey };
    const unprefixed = `/apps/${app.appId}/keys`;
    const again = await send(granary.url, 'POST', unprefixed, { headers, body: { ...body, permissions: ['Write'] } });
    expect(again).toMatchObject({ status: 409, body: { code: 'ALREADY_EXISTS' } });
    expect(again.body['error']).toContain('already exists');
    expect(await statusWith(first.body.app_key)).toBe(200);
    const taken = await app.call('POST', `${path}/keys`, { ...body, name: 'default' });
    expect(taken).toMatchObject({ status: 409, body: { code: 'ALREADY_EXISTS' } });
    const other = await send(granary.url, 'POST', unprefixed, { headers, body: { ...body, name: 'second' } });
    expect(other.status).toBe(201);
    expect((await send(granary.url, 'POST', unprefixed, { key: first.body.app_key, body })).status).toBe(403);
    expect((await list()).body.keys.map(({ name }) => name).sort()).toEqual(['default', 'second', 'web']);
  });

  test('of 10 concurrent callers that create a key of one name one does', async () => {
    const body = { name: 'web', permissions: ['Read'] };
    const made = await Promise.all(Array.from({ length: 10 }, () => app.call('POST', `${path}/keys`, body)));
    expect(made.map(({ status }) => status).sort()).toEqual([201, ...Array<number>(9).fill(409)]);
  });

  test('a replaced key keeps what the request leaves out', async () => {
    const set = { max_payment_per_tx: 10, spend_allowance: 100 };
    const limits = { allowed_target_apps: null, expires_at: null, ...set };
    const agent = { name: 'agent', permissions: ['Read', 'Pay'] };
    expect((await make({ ...agent, pay_limits: set })).status).toBe(200);
    expect(await make({ name: 'agent' })).toMatchObject({ status: 200, body: { ...agent, pay_limits: limits } });
    const narrower = { name: 'agent', permissions: ['Pay'] };
    expect(await make(narrower)).toMatchObject({ status: 200, body: { ...narrower, pay_limits: limits } });
    const unlimited = { ...limits, max_payment_per_tx: null, spend_allowance: null };
    const changed = await make({ name: 'agent', pay_limits: {} });
    expect(changed).toMatchObject({ status: 200, body: { ...narrower, pay_limits: unlimited } });
    const rolled = await make({});
    expect(rolled).toMatchObject({ status: 200, body: { name: 'default', permissions: ['Admin', 'Read', 'Write'] } });
    expect(await statusWith(rolled.body.app_key)).toBe(200);
    expect(await make({ name: 'none' }, rolled.body.app_key)).toMatchObject({
      status: 400,
      body: { code: 'VALIDATION_FAILED', details: { permissions: [text] } },
    });
  });

  test('the last key with Admin is neither lowered nor revoked, but by the operator', async () => {
    const [first] = (await list()).body.keys;
    const before = (await list()).text;
    const refused = { status: 409, body: { code: 'LAST_ADMIN_KEY', error: text } };
    expect(await make({ permissions: ['Read'] })).toMatchObject(refused);
    expect(await app.call('DELETE', `${path}/keys/${first!.key_id}`)).toMatchObject(refused);
    expect((await list()).text).toBe(before);
    const headers = { 'x-operator-key': operatorKey };
    const lowered = await send<MadeKey>(granary.url, 'POST', `${path}/regenerate-key`, {
      headers,
      body: { permissions: ['Read'] },
    });
    expect(lowered).toMatchObject({ status: 200, body: { permissions: ['Read'] } });
    const revoked = await send(granary.url, 'DELETE', `${path}/keys/${lowered.body.key_id}`, { headers });
    expect(revoked.status).toBe(200);
  });

  test.each(['revoked', 'lowered and revoked'])('of two keys with Admin that are %s at once one stays', async (how) => {
    // The owner signs both requests: a key of the app could be revoked before the second one arrives.
    const owner = newWallet();
    const body = { app_id: `t-${randomUUID()}`, name: 'Owned', owner_address: owner.address };
    const headers = { 'x-operator-key': operatorKey };
    const made = await send<MadeKey>(granary.url, 'POST', '/api/applications', { body, headers });
    const keys = `/api/apps/${body.app_id}/keys`;
    const asOwner = (method: string, target: string, content?: object) => {
      const text = content && JSON.stringify(content);
      return send<MadeKey>(granary.url, method, target, {
        body: text,
        headers: signedRequest(owner, method, target, text),
      });
    };
    const second = await asOwner('POST', keys, { name: 'second', permissions: ['Admin'] });
    const answers = await Promise.all([
      asOwner('DELETE', `${keys}/${second.body.key_id}`),
      how === 'revoked'
        ? asOwner('DELETE', `${keys}/${made.body.key_id}`)
        : asOwner('POST', `/api/apps/${body.app_id}/regenerate-key`, { permissions: ['Read'] }),
    ]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    expect(answers.find(({ status }) => status === 409)!.body).toMatchObject({ code: 'LAST_ADMIN_KEY' });
  });

  test('the secret of a replaced key stops working, and its permissions are those of the request', async () => {
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
