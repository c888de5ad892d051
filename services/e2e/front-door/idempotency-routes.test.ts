import { randomUUID } from 'node:crypto';
import type { Route } from '@granary/gateway/pipeline/route';
import { routes } from '@granary/gateway/routes/table';
import { asCaller, changingRequests, settleMoney, type ChangingRequest } from '../support/changing-requests';
import { newApp, operatorKey, send, transports, type Answer, type Granary, type TestApp } from '../support/granary';
import { variants } from '../support/granary-settings';
import { startGranary } from '../support/own-granary';

/**
 * POST by the interface, or because their questions do not fit into a URL: they only read; a payment is settled once by
 * itself.
 */
const reading = [
  'list',
  'validateDocuments',
  'explainQuery',
  'readSubscribedChanges',
  // A token is kept nowhere: another one for the same request does no harm.
  'createFeedToken',
  'getPayoutInfo',
  'listPayouts',
  'quotePrice',
  'verifyPayment',
  'settlePayment',
];
/** Safe to repeat by itself: a part of a file is stored only where the import is at its offset. */
const positioned = ['sendImport'];
const changing = routes.filter(
  ({ id, method, undocumented }) =>
    method !== 'GET' && undocumented !== 'planned' && ![...reading, ...positioned].includes(id),
);

test('every route that changes something takes an Idempotency-Key, and has a request in this suite', () => {
  expect(changing.filter(({ headers }) => !headers || !('Idempotency-Key' in headers)).map(({ id }) => id)).toEqual([]);
  expect(Object.keys(changingRequests).sort()).toEqual(changing.map(({ id }) => id).sort());
});

describe.each(transports)('Idempotency-Key of every changing route (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await startGranary(transport, { settings: variants.simulated });
    app = await newApp(granary);
    await app.store('docs', [{ id: '1', n: 1 }]);
  });
  afterAll(() => granary.stop());

  const request = (route: Route, asked: ChangingRequest, key: string) => {
    const sent = asCaller(route, asked, app.key);
    const headers = { ...sent.headers, 'idempotency-key': `${route.id}-${key}` };
    return send(granary.url, route.method, asked.path, { ...sent, headers });
  };

  /** What the owner sees of the application and of the list of applications. */
  async function everything(): Promise<string[]> {
    const own = ['collections', 'indexes', 'views', 'queries', 'datasets', 'keys', 'wallet'];
    const paths = [`/api/applications/${app.appId}`, `/api/skills/${app.appId}/skills.md`];
    for (const name of own) paths.push(`/api/apps/${app.appId}/${name}`);
    const answers = await Promise.all(paths.map((path) => app.call('GET', path)));
    answers.push(await app.call('POST', `/api/apps/${app.appId}/payout/info`));
    answers.push(
      await send(granary.url, 'GET', '/api/applications', { headers: { 'x-operator-key': operatorKey } }),
      await send(granary.url, 'POST', '/list', {
        key: app.key,
        body: { root: `${app.appId}::docs`, include_history: true },
      }),
    );
    return answers.map(({ status, text }) => `${status} ${text}`);
  }

  const secretIn = (body: object) => ['app_key', 'user_key'].find((name) => name in body);
  /** What a repetition answers too: all but the secret of a key. */
  const lasting = ({ status, headers, text, body }: Answer) => ({
    status,
    location: headers.get('location'),
    etag: headers.get('etag'),
    text: secretIn(body) === undefined ? text : JSON.stringify({ ...body, [secretIn(body)!]: null }),
  });
  const isReplayed = ({ headers }: Answer) => headers.get('idempotency-replayed') === 'true';

  async function ended(answer: Answer): Promise<Answer> {
    if (typeof answer.body['ticket_id'] === 'string') await app.ended(answer.body['ticket_id']);
    if (answer.status === 202) await settleMoney(app);
    return answer;
  }

  const made = new Map<Route, { request: ChangingRequest; key: string; answer: Answer }>();

  test.each(changing.map((route) => [`${route.method} ${route.path}`, route] as const))(
    '%s: a repetition gets the same answer and changes nothing, other content is refused',
    async (_, route) => {
      const asked = await changingRequests[route.id]!(app);
      const key = randomUUID();
      const first = await ended(await request(route, asked, key));
      expect([200, 201, 202]).toContain(first.status);
      expect(isReplayed(first)).toBe(false);
      made.set(route, { request: asked, key, answer: first });
      const before = await everything();
      const again = await request(route, asked, key);
      expect(lasting(again)).toEqual(lasting(first));
      expect(isReplayed(again)).toBe(true);
      const other = await request(route, { ...asked, ...asked.other }, key);
      expect(other).toMatchObject({ status: 422, body: { code: 'IDEMPOTENCY_KEY_REUSED' } });
      expect(await everything()).toEqual(before);
    },
  );

  test.each(changing.map((route) => [`${route.method} ${route.path}`, route] as const))(
    '%s: of two at once one makes the change, and both get its answer',
    async (_, route) => {
      const asked = await changingRequests[route.id]!(app);
      const key = randomUUID();
      const answers = await Promise.all([request(route, asked, key), request(route, asked, key)]);
      expect(lasting(answers[1])).toEqual(lasting(answers[0]));
      expect([200, 201, 202]).toContain(answers[0].status);
      expect(answers.filter(isReplayed)).toHaveLength(1);
      await ended(answers[0]);
    },
  );

  test('the caller is the named key: all are answered again after its secret was replaced', async () => {
    const replaced = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, {
      name: 'default',
      permissions: ['Admin', 'Read', 'Write'],
    });
    app.key = replaced.body.app_key;
    expect(made.size).toBe(changing.length);
    for (const [route, { request: asked, key, answer }] of made) {
      const again = await request(route, asked, key);
      expect([route.id, lasting(again), isReplayed(again)]).toEqual([route.id, lasting(answer), true]);
    }
  });
});
