import { randomUUID } from 'node:crypto';
import { routes } from '@granary/gateway/routes/table';
import type { Route } from '@granary/gateway/pipeline/route';
import { eventually } from '@granary/testing/eventually';
import { borrowGranary, newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { expectProblem } from '../support/problem-shape';
import { closeConnections, sendRaw, type RawAnswer } from '../support/raw-http';
import { newWallet } from '../support/wallet-signing';

type Permission = 'Read' | 'Write' | 'Admin' | 'Pay';
const allPermissions: Permission[] = ['Read', 'Write', 'Admin', 'Pay'];

/** What contract §3 says of a route that is for a key, told from nothing but its method and path. */
function documentedPermission({ method, path }: Pick<Route, 'method' | 'path'>): Permission {
  // Who sends a file has to see how far it is.
  if (/\/imports(\/|$)/.test(path)) return 'Write';
  if (method === 'GET') return /\/keys$/.test(path) ? 'Admin' : 'Read';
  if (method === 'PATCH' && path === '/applications/{app_id}') return 'Admin';
  if (/^\/list$|^\/query\/sql$|\/(validate|explain|feed-tokens|payout\/info|payout\/history)$/.test(path))
    return 'Read';
  if (/\/(indexes|keys|retention|sharding|payout|skills|encryption)(\/|$)|\/(regenerate-key|relations)$/.test(path))
    return 'Admin';
  return 'Write';
}

/** The table of contract §1: who may use each of the 22 documented endpoints. */
const documented: Array<[endpoint: string, auth: string]> = [
  ['GET /authz/transactions/{user_address}', 'wallet'],
  ['GET /authz/transactions/app/{app_id}', 'Read or operator'],
  ['GET /apps/{app_id}/collections/{collection}/data', 'reader'],
  ['POST /apps/{app_id}/views', 'Write'],
  ['POST /apps/{app_id}/blobs/{collection}', 'Write'],
  ['GET /health', 'public'],
  ['POST /apps/{app_id}/payout/settings', 'Admin'],
  ['GET /views/{app_id}/{view_name}/data', 'reader'],
  ['GET /apps/{app_id}/indexes/encrypted-quote', 'Read'],
  ['GET /apps/{app_id}/api_collections', 'Read'],
  ['GET /apps/{app_id}/retention/cost', 'Read'],
  ['POST /x402/verify', 'public'],
  ['POST /x402/settle', 'reader'],
  ['GET /skills/{app_id}/skills.md', 'reader'],
  ['POST /apps/{app_id}/payout/info', 'Read'],
  ['POST /apps/{app_id}/collections', 'Write'],
  ['GET /apps/{app_id}/queries', 'reader'],
  ['GET /apps/{app_id}/wallet', 'Read'],
  ['GET /apps/{app_id}/collections', 'Read'],
  ['GET /apps/{app_id}/indexes', 'Read'],
  ['POST /apps/{app_id}/payout/history', 'Read'],
  ['GET /applications/{app_id}', 'reader'],
  ['GET /tasks/{ticket_id}', 'public'],
];

const authName = ({ auth }: Route): string =>
  auth.kind === 'app' ? `${auth.permission}${auth.operator ? ' or operator' : ''}` : auth.kind;
const named = (list: readonly Route[]) => list.map((route) => ({ name: `${route.method} ${route.path}`, route }));
const appRoutes = named(routes.filter(({ auth }) => auth.kind === 'app'));
const operatorRoutes = named(routes.filter(({ auth }) => auth.kind === 'operator'));
/** Streams write their own answers, and health changes from one moment to the next. */
const isComparable = ({ path }: Route) => !/health|readyz|livez/.test(path);

const samples: Record<string, string> = {
  collection: 'films',
  view_name: 'none',
  query_name: 'none',
  index_name: 'none',
  blob_id: 'none',
  import_id: 'none',
  key_id: 'none',
  ticket_id: 'c1-AAAAAAAAAAAAAAAAAAAA',
  document_id: 'none',
  height: '1',
  user_address: newWallet().address,
};

/** The path of a route for an app, with its first prefix unless another is given. */
function pathOf(route: Route, appId: string, prefix = route.prefixes[0]!): string {
  return prefix + route.path.replace(/\{(\w+)\}/g, (_, name: string) => (name === 'app_id' ? appId : samples[name]!));
}

test('the 22 documented endpoints need the documented permission, and every other route follows the rule', () => {
  const byName = new Map(routes.map((route) => [`${route.method} ${route.path}`, route]));
  expect(documented.map(([endpoint]) => [endpoint, authName(byName.get(endpoint)!)])).toEqual(documented);
  for (const { name, route } of appRoutes) {
    expect([name, route.auth]).toEqual([name, expect.objectContaining({ permission: documentedPermission(route) })]);
  }
});

test('every route of an app is served under both prefixes', () => {
  const both = routes.filter(({ path }) => /^\/(apps|applications|views|queries|skills|tasks|task|authz)\b/.test(path));
  expect(both.length).toBeGreaterThan(50);
  for (const { path, prefixes } of both) expect([path, [...prefixes].sort()]).toEqual([path, ['', '/api']]);
});

describe.each(transports)('permissions (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let other: TestApp;
  let deleted: TestApp;
  /** A key with all permissions but one. */
  const without = new Map<Permission, string>();
  /** A key with one permission only. */
  const only = new Map<Permission, string>();

  const newKey = async (permissions: Permission[], owner = app) => {
    const path = `/api/apps/${owner.appId}/regenerate-key`;
    const made = await owner.call<{ app_key: string }>('POST', path, { name: randomUUID(), permissions });
    if (made.status !== 200) throw new Error(`no key: ${made.text}`);
    return made.body.app_key;
  };

  beforeAll(async () => {
    granary = await borrowGranary(transport);
    [app, other, deleted] = await Promise.all([newApp(granary), newApp(granary), newApp(granary)]);
    for (const permission of allPermissions) {
      // Admin includes the others but Pay, so a key that lacks Read or Write has no Admin either.
      const rest = allPermissions.filter((one) => one !== permission && (permission === 'Pay' || one !== 'Admin'));
      without.set(permission, await newKey(rest));
      only.set(permission, await newKey([permission]));
    }
    const gone = await send(granary.url, 'DELETE', `/api/applications/${deleted.appId}`, {
      headers: { 'x-operator-key': operatorKey },
    });
    expect(gone.status).toBe(200);
    await eventually(async () => (await deleted.call('GET', `/api/apps/${deleted.appId}/wallet`)).status === 401);
  });
  afterAll(async () => {
    closeConnections();
    await granary.stop();
  });

  /** Whatever a refused request says beside who sends it is not looked at: here it is nonsense. */
  const ask = (route: Route, path: string, headers: Record<string, string>): Promise<RawAnswer> =>
    sendRaw(granary.url, {
      method: route.method,
      path,
      headers: route.method === 'GET' ? headers : { 'Content-Type': 'nonsense/nonsense', ...headers },
      ...(route.method === 'GET' ? {} : { body: '{"' }),
    });
  const outcome = async (route: Route, path: string, headers: Record<string, string> = {}) => {
    const answer = await ask(route, path, headers);
    return `${answer.status} ${expectProblem(answer).code}`;
  };

  test.each(appRoutes)('$name refuses a missing key, an unknown one, and one of a deleted app', async ({ route }) => {
    const refused = '401 UNAUTHENTICATED';
    for (const prefix of route.prefixes) {
      const path = pathOf(route, app.appId, prefix);
      expect(await outcome(route, path)).toBe(refused);
      for (const key of [
        'app_unknown',
        `app_${'x'.repeat(43)}`,
        'x',
        app.key.slice(0, -1),
        `${app.key}x`,
        deleted.key,
      ]) {
        expect(await outcome(route, path, { 'X-App-Key': key })).toBe(refused);
      }
      expect(await outcome(route, path, { Authorization: `Basic ${app.key}` })).toBe(refused);
      expect(await outcome(route, path, { 'X-App-Key': app.key, 'X-API-Key': other.key })).toBe(refused);
      expect(await outcome(route, path, { 'X-Operator-Key': 'wrong-operator-key' })).toBe(refused);
      expect(await outcome(route, pathOf(route, deleted.appId, prefix), { 'X-App-Key': deleted.key })).toBe(refused);
    }
  });

  test.each(appRoutes)('$name refuses a key that lacks the permission', async ({ route }) => {
    const permission = documentedPermission(route);
    for (const prefix of route.prefixes) {
      const key = without.get(permission)!;
      expect(await outcome(route, pathOf(route, app.appId, prefix), { 'X-App-Key': key })).toBe('403 FORBIDDEN');
      const pay = only.get('Pay')!;
      expect(await outcome(route, pathOf(route, app.appId, prefix), { 'X-App-Key': pay })).toBe('403 FORBIDDEN');
    }
  });

  test.each(appRoutes)(
    '$name accepts a key with the permission, in each header that may carry it',
    async ({ route }) => {
      const key = only.get(documentedPermission(route))!;
      const path = pathOf(route, app.appId);
      for (const given of [key, only.get('Admin')!]) {
        for (const headers of [{ 'X-App-Key': given }, { Authorization: `Bearer ${given}` }, { 'X-API-Key': given }]) {
          const { status } = await ask(route, path, headers);
          expect([401, 403, 500]).not.toContain(status);
        }
      }
    },
  );

  test.each(appRoutes.filter(({ route }) => route.path.includes('{app_id}')))(
    '$name refuses the key of another app, whether or not the app exists',
    async ({ route }) => {
      for (const prefix of route.prefixes) {
        for (const appId of [app.appId, 'nobody-has-this', deleted.appId, 'not%20a%20name', '..%2F..']) {
          const path = pathOf(route, appId, prefix);
          expect(await outcome(route, path, { 'X-App-Key': other.key })).toBe('403 FORBIDDEN');
        }
      }
    },
  );

  test('a key neither stores into nor lists another app, whether or not that exists', async () => {
    await app.store('films', [{ id: 'a' }]);
    for (const appId of [app.appId, deleted.appId, 'nobody-has-this']) {
      for (const [path, body] of [
        ['/store', { root: `${appId}::films`, data: [{ id: 'a', stolen: true }] }],
        ['/list', { root: `${appId}::films` }],
      ] as const) {
        expect(await other.call('POST', path, body)).toMatchObject({ status: 403, body: { code: 'FORBIDDEN' } });
      }
    }
    expect((await app.list('films', { find: { id: 'a' } })).text).not.toContain('stolen');
  });

  test.each(operatorRoutes)('$name accepts only the operator', async ({ route }) => {
    for (const prefix of route.prefixes) {
      const path = pathOf(route, app.appId, prefix);
      for (const headers of [
        {},
        { 'X-App-Key': app.key },
        { 'X-App-Key': operatorKey },
        { Authorization: `Bearer ${operatorKey}` },
        { 'X-Operator-Key': app.key },
        { 'X-Operator-Key': '' },
        { 'X-Operator-Key': operatorKey.slice(0, -1) },
        { 'X-Operator-Key': `${operatorKey}x` },
      ] as Array<Record<string, string>>) {
        expect(await outcome(route, path, headers)).toBe('401 UNAUTHENTICATED');
      }
    }
    const { status } = await ask(route, pathOf(route, 'nobody-has-this'), { 'X-Operator-Key': operatorKey });
    expect([401, 403, 500]).not.toContain(status);
  });

  test.each(appRoutes.filter(({ route }) => route.auth.kind === 'app' && route.auth.operator))(
    '$name accepts the operator too',
    async ({ route }) => {
      const right = await ask(route, pathOf(route, app.appId), { 'X-Operator-Key': operatorKey });
      expect([401, 403, 500]).not.toContain(right.status);
      const wrong = await outcome(route, pathOf(route, app.appId), { 'X-Operator-Key': 'wrong', 'X-App-Key': app.key });
      expect(wrong).toBe('401 UNAUTHENTICATED');
    },
  );

  test.each(named(routes.filter(isComparable)))(
    '$name answers the same under each prefix and with a trailing slash; HEAD and OPTIONS work',
    async ({ route }) => {
      // Nobody's key for an app that is not there: nothing changes, and every public route has an answer of its own.
      const paths = route.prefixes.flatMap((prefix) => {
        const path = pathOf(route, 'nobody-has-this', prefix);
        return path === '/' ? [path] : [path, `${path}/`];
      });
      const answers = await Promise.all(paths.map((path) => ask(route, path, {})));
      for (const { status, text } of answers) expect([status, text]).toEqual([answers[0]!.status, answers[0]!.text]);
      for (const path of paths) {
        const options = await sendRaw(granary.url, {
          method: 'OPTIONS',
          path,
          headers: { Origin: 'https://example.org', 'Access-Control-Request-Method': route.method },
        });
        expect(options.status).toBe(204);
        expect(String(options.headers['allow']).split(', ')).toContain(route.method);
        expect(String(options.headers['access-control-allow-methods']).split(', ')).toContain(route.method);
        expect(options.headers['access-control-allow-origin']).toBe('*');
      }
      if (route.method !== 'GET') return;
      for (const [at, path] of paths.entries()) {
        const head = await sendRaw(granary.url, { method: 'HEAD', path });
        expect([head.status, head.text]).toEqual([answers[at]!.status, '']);
        expect(head.headers['content-type']).toBe(answers[at]!.headers['content-type']);
        expect(head.headers['content-length']).toBe(answers[at]!.headers['content-length']);
      }
    },
  );

  test('an application shows its name to everyone and the rest to its own key and the operator', async () => {
    const path = `/api/applications/${app.appId}`;
    const open = { app_id: app.appId, name: 'Test', description: '', created_at: expect.any(String) as string };
    const whole = {
      ...open,
      owner_address: null,
      payment_networks: null,
      updated_at: expect.any(String) as string,
      height: expect.any(Number) as number,
    };
    expect((await send(granary.url, 'GET', path)).body).toEqual(open);
    expect((await other.call('GET', path)).body).toEqual(open);
    expect((await app.call('GET', path)).body).toEqual(whole);
    const asOperator = await send(granary.url, 'GET', path, { headers: { 'x-operator-key': operatorKey } });
    expect(asOperator.body).toEqual(whole);
  });

  test('the resources of a deleted app are 404 to everyone', async () => {
    for (const [path, code] of [
      [`/api/applications/${deleted.appId}`, 'APP_NOT_FOUND'],
      [`/api/skills/${deleted.appId}/skills.md`, 'APP_NOT_FOUND'],
      [`/apps/${deleted.appId}/queries`, 'APP_NOT_FOUND'],
      [`/api/apps/${deleted.appId}/collections/films/data`, 'APP_NOT_FOUND'],
      [`/api/views/${deleted.appId}/v/data`, 'APP_NOT_FOUND'],
      [`/api/queries/${deleted.appId}/q/data`, 'APP_NOT_FOUND'],
    ] as const) {
      const answer = await sendRaw(granary.url, { method: 'GET', path });
      expect(`${path} ${answer.status} ${expectProblem(answer).code}`).toBe(`${path} 404 ${code}`);
    }
  });
});
