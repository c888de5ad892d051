import { randomUUID } from 'node:crypto';
import type { Route } from '@granary/gateway/pipeline/route';
import { routes } from '@granary/gateway/routes/table';
import { borrowGranary, operatorKey, send, transports, type Answer, type Granary } from '../support/granary';
import { newWallet, signedRequest, type Wallet } from '../support/wallet-signing';

const samples: Record<string, string> = {
  collection: 'films',
  ticket_id: 'c1-AAAAAAAAAAAAAAAAAAAA',
  height: '1',
};

/** What is for keys of an application, but for streams to the service, which nobody can sign. */
const signable = routes.filter(
  ({ auth, body, method }) => auth.kind === 'app' && (body?.kind !== 'stream' || method === 'GET'),
);

describe.each(transports)('the owner of an app, by signature (%s)', (transport) => {
  let granary: Granary;
  const owner = newWallet();
  let appId: string;
  const ownApp = async (wallet: Wallet | undefined): Promise<string> => {
    const made = await send<{ app_id: string }>(granary.url, 'POST', '/api/applications', {
      body: { app_id: `t-${randomUUID()}`, name: 'Owned', owner_address: wallet?.address },
      headers: { 'x-operator-key': operatorKey },
    });
    return made.body.app_id;
  };
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    appId = await ownApp(owner);
  });
  afterAll(() => granary.stop());

  /** A request that is sent as the wallet has signed it, but for what is changed on its way. */
  const signed = (
    wallet: Wallet,
    method: string,
    path: string,
    body?: object,
    changed: { method?: string; path?: string; body?: string; headers?: Record<string, string> } = {},
  ): Promise<Answer> => {
    const text = body && JSON.stringify(body);
    const headers = { 'x-app-id': appId, ...signedRequest(wallet, method, path, text), ...changed.headers };
    return send(granary.url, changed.method ?? method, changed.path ?? path, { headers, body: changed.body ?? text });
  };
  const refused = { status: 401, body: { code: 'UNAUTHENTICATED' } };
  const pathOf = ({ path, prefixes }: Route, id: string): string =>
    prefixes[0]! +
    path.replace(/\{(\w+)\}/g, (_, name: string) => (name === 'app_id' ? id : (samples[name] ?? 'none')));

  test('may do what a key with Admin, Read and Write may, and nobody else', async () => {
    expect(signable.length).toBeGreaterThan(40);
    const stranger = newWallet();
    const others = await ownApp(stranger);
    for (const route of signable) {
      const { method } = route;
      const path = pathOf(route, appId);
      const body = route.body ? {} : undefined;
      const own = await signed(owner, method, path, body);
      expect([method, path, own.status]).not.toEqual([method, path, 401]);
      expect([method, path, own.status]).not.toEqual([method, path, 403]);
      expect([method, path, await signed(stranger, method, path, body)]).toMatchObject([method, path, refused]);
      const elsewhere = await signed(owner, method, pathOf(route, others), body, { headers: { 'x-app-id': others } });
      expect([method, path, elsewhere]).toMatchObject([method, path, refused]);
    }
  });

  test('writes and reads where the path names no app, with X-App-Id', async () => {
    const root = `${appId}::notes`;
    expect(await signed(owner, 'POST', '/store', { root, data: [{ id: 'a' }] })).toMatchObject({ status: 202 });
    const listed = await signed(owner, 'POST', '/list', { root });
    expect(listed).toMatchObject({ status: 200, body: { records: [{ id: 'a' }] } });
    const nowhere = { 'x-app-id': '' };
    expect(await signed(owner, 'POST', '/list', { root }, { headers: nowhere })).toMatchObject(refused);
    const other = await ownApp(owner);
    const mixed = await signed(owner, 'POST', '/list', { root }, { headers: { 'x-app-id': other } });
    expect(mixed).toMatchObject({ status: 403, body: { code: 'FORBIDDEN' } });
  });

  test('reads what is private, at the entrances that are public', async () => {
    const collections = `/api/apps/${appId}/collections`;
    const made = await signed(owner, 'POST', collections, { name: 'secret', access_policy: { read: 'private' } });
    expect(made.status).toBe(201);
    const path = `${collections}/secret/data`;
    expect((await signed(owner, 'GET', path)).status).toBe(200);
    expect(await send(granary.url, 'GET', path)).toMatchObject(refused);
    expect(await signed(newWallet(), 'GET', path)).toMatchObject(refused);
    const elsewhere = signedRequest(owner, 'GET', `${path}?limit=1`);
    expect(await signed(owner, 'GET', path, undefined, { headers: elsewhere })).toMatchObject(refused);
  });

  test('does not keep other wallets from what is public', async () => {
    const collections = `/api/apps/${appId}/collections`;
    expect((await signed(owner, 'POST', collections, { name: 'open' })).status).toBe(201);
    const path = `${collections}/open/data`;
    expect((await signed(newWallet(), 'GET', path)).status).toBe(200);
    const old = signedRequest(newWallet(), 'GET', path, '', Date.now() - 600_000);
    expect((await signed(newWallet(), 'GET', path, undefined, { headers: old })).status).toBe(200);
  });

  test('is refused when anything was changed on the way, and then nothing changes', async () => {
    const path = `/api/apps/${appId}/datasets/colours`;
    const body = { values: ['red'] };
    const wrong: Array<Parameters<typeof signed>[4]> = [
      { body: '{"values":["blue"]}' },
      { body: '' },
      { body: '{"values":["red"]} ' },
      { path: `${path}?a=1` },
      { path: path.slice('/api'.length) },
      { method: 'DELETE' },
      { headers: { 'x-timestamp': String(Math.floor(Date.now() / 1000) - 1) } },
      { headers: { 'x-wallet-address': newWallet().address } },
    ];
    for (const changed of wrong) expect(await signed(owner, 'PUT', path, body, changed)).toMatchObject(refused);
    expect((await signed(owner, 'GET', path)).status).toBe(404);
    expect((await signed(owner, 'PUT', path, body)).status).toBeLessThan(300);
  });

  test('is told that uploads cannot be signed', async () => {
    const path = `/api/apps/${appId}/blobs/files`;
    const headers = { ...signedRequest(owner, 'POST', path, 'bytes'), 'content-type': 'text/plain' };
    const answer = await send(granary.url, 'POST', path, { headers, body: 'bytes' });
    expect(answer).toMatchObject({ ...refused, body: { error: expect.stringContaining('streamed') as string } });
  });

  test('a signature changes something once, and reads as often as it is sent', async () => {
    const body = JSON.stringify({ root: `${appId}::once`, data: [{ n: 1 }] });
    const headers = { 'x-app-id': appId, ...signedRequest(owner, 'POST', '/store', body), 'idempotency-key': 'one' };
    const store = () => send(granary.url, 'POST', '/store', { headers, body });
    const answers = await Promise.all(Array.from({ length: 20 }, store));
    const statuses = answers.map(({ status }) => status).sort();
    expect(statuses).toEqual([202, ...Array.from({ length: 19 }, () => 409)]);
    expect(await store()).toMatchObject({ status: 409, body: { code: 'SIGNATURE_USED' } });
    // Signed again, it is repeated under its Idempotency-Key.
    const again = { ...headers, ...signedRequest(owner, 'POST', '/store', body, Date.now() + 2_000) };
    const repeated = await send(granary.url, 'POST', '/store', { headers: again, body });
    expect([repeated.status, repeated.headers.get('idempotency-replayed')]).toEqual([202, 'true']);

    const query = JSON.stringify({ root: `${appId}::once` });
    const reading = { 'x-app-id': appId, ...signedRequest(owner, 'POST', '/list', query) };
    for (let time = 0; time < 3; time += 1) {
      const { status, body: page } = await send(granary.url, 'POST', '/list', { headers: reading, body: query });
      expect([status, page['total']]).toEqual([200, 1]);
    }
  });

  test('has no power over an app that is deleted or has no owner', async () => {
    const path = (id: string) => `/api/apps/${id}/keys`;
    const unowned = await ownApp(undefined);
    expect(await signed(owner, 'GET', path(unowned))).toMatchObject(refused);
    expect(await signed(owner, 'GET', path('never-made'))).toMatchObject(refused);
    const deleted = await ownApp(owner);
    const headers = { 'x-operator-key': operatorKey };
    expect((await send(granary.url, 'DELETE', `/api/applications/${deleted}`, { headers })).status).toBe(200);
    expect(await signed(owner, 'GET', path(deleted))).toMatchObject(refused);
  });
});
