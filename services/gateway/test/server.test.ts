import { connect } from 'node:net';
import type { AddressInfo } from 'node:net';
import express, { type Response as Outgoing } from 'express';
import { readConfig } from '@granary/shared/config';
import { createLogger } from '@granary/shared/logger';
import { KeyedBudget } from '@granary/shared/concurrency/keyed-budget';
import { Bodies } from '@granary/gateway/admission/bodies';
import { readBody } from '@granary/gateway/http/body';
import { createHttpServer } from '@granary/gateway/http/server';
import { gatewayConfig } from '@granary/gateway/config';
import { addRoutes } from '@granary/gateway/pipeline/dispatch';
import { requestContextOf } from '@granary/gateway/pipeline/request-context';
import { beginRequest } from '@granary/gateway/pipeline/begin-request';
import type { GatewayContext } from '@granary/gateway/pipeline/gateway-context';
import { routes } from '@granary/gateway/routes/table';
import { startGateway, type RunningGateway } from '@granary/gateway/service';

// Nothing listens on port 1: a gateway alone in the world, with every service down.
const nowhere = '127.0.0.1:1';
const config = readConfig(gatewayConfig, {
  PORT: '0',
  OPERATOR_KEY: 'the key of the operator',
  INTERNAL_SECRET: 'a secret that the services share with each other',
  DATA_ADDRESS: nowhere,
  BLOBS_ADDRESS: nowhere,
  FINANCE_ADDRESS: nowhere,
  PAYMENTS_ADDRESS: nowhere,
  TASKS_ADDRESS: nowhere,
  BLOBS_HTTP_ADDRESS: nowhere,
});

const log = createLogger('gateway', 'silent');
let gateway: RunningGateway;
beforeAll(async () => {
  gateway = await startGateway(config, { log });
});
afterAll(() => gateway.stop());

const get = (path: string, init: RequestInit = {}) => fetch(gateway.url + path, init);
const codeOf = async (response: Response) => ((await response.json()) as { code: string }).code;

/** What the gateway sends for these bytes until it closes the connection. */
function exchange(bytes: string, port = gateway.port): Promise<string> {
  return new Promise((resolve, reject) => {
    let received = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(bytes));
    socket.on('data', (chunk: Buffer) => (received += chunk.toString()));
    socket.on('close', () => resolve(received)).on('error', reject);
  });
}

interface Operation {
  operationId: string;
  tags: string[];
  security: Array<Record<string, unknown>>;
  parameters: Array<{ name: string; in: string; required: boolean; schema: unknown }>;
  responses: Record<string, { description: string }>;
}
interface Document {
  openapi: string;
  info: { title: string; version: string };
  tags: Array<{ name: string }>;
  paths: Record<string, Record<string, Operation>>;
  components: Record<string, Record<string, unknown>>;
}

const readDocument = async () => (await (await get('/openapi.json')).json()) as Document;

test('a request has its prototype from birth, and Express changes nothing about it', async () => {
  const app = express();
  const seen: boolean[] = [];
  const server = createHttpServer(app, config);
  server.prependListener('request', (request, response) => {
    seen.push(Object.getPrototypeOf(request) === app.request, Object.getPrototypeOf(response) === app.response);
  });
  app.use((request, response) => {
    seen.push(Object.getPrototypeOf(request) === app.request, Object.getPrototypeOf(response) === app.response);
    response.status(201).json({ path: request.path, ip: request.ip });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/a/b`);
  expect(response.status).toBe(201);
  expect(await response.json()).toEqual({ path: '/a/b', ip: '127.0.0.1' });
  expect(seen).toEqual([true, true, true, true]);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const documented = routes.filter((route) => route.undocumented === undefined);

test('every route is served under each of its prefixes, and nothing else is', async () => {
  const methods = new Map<string, string[]>();
  for (const { prefixes, path, method } of routes) {
    for (const prefix of prefixes) {
      const allowed = methods.get(prefix + path) ?? ['OPTIONS'];
      methods.set(prefix + path, [...allowed, method, ...(method === 'GET' ? ['HEAD'] : [])]);
    }
  }
  for (const [path, expected] of methods) {
    const sample = path.replace('{height}', '1').replace(/\{\w+\}/g, 'x');
    const allow = (await get(sample, { method: 'OPTIONS' })).headers.get('allow');
    expect([path, allow?.split(', ').sort()]).toEqual([path, expected.sort()]);
  }
  const app = express();
  addRoutes(app, {} as GatewayContext, routes);
  const served = app.router.stack.flatMap((layer) => layer.route?.path ?? []);
  expect(served.map((path) => path.replace(/:(\w+)/g, '{$1}')).sort()).toEqual([...methods.keys()].sort());
});

test('the document has every operation once: no other spelling, and nothing that answers 501', async () => {
  const { paths } = await readDocument();
  const found = Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, { operationId }]) => [operationId, method.toUpperCase(), path]),
  );
  expect(found.sort()).toEqual(
    documented.map(({ id, method, prefixes, path }) => [id, method, `${prefixes[0]}${path}`]).sort(),
  );
  for (const operation of Object.values(paths).flatMap((operations) => Object.values(operations))) {
    expect(operation.responses).not.toHaveProperty('501');
    expect(Object.keys(operation.responses)).toEqual(expect.arrayContaining([expect.stringMatching(/^2/)]));
  }
});

test('the document is OpenAPI 3.1 in its structure', async () => {
  const document = await readDocument();
  expect(document.openapi).toBe('3.1.0');
  expect(document.info.version).toMatch(/^\d+\.\d+\.\d+/);
  const ids = new Set<string>();
  const tags = new Set(document.tags.map(({ name }) => name));
  for (const [path, operations] of Object.entries(document.paths)) {
    expect(path).toMatch(/^\/(?:[^{}]|\{\w+\})*$/);
    const inTemplate = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
    for (const operation of Object.values(operations)) {
      expect(ids.has(operation.operationId)).toBe(false);
      ids.add(operation.operationId);
      expect(operation.tags.every((tag) => tags.has(tag))).toBe(true);
      const inPath = operation.parameters.filter((parameter) => parameter.in === 'path');
      expect(inPath.map(({ name }) => name)).toEqual(inTemplate);
      expect(inPath.every(({ required }) => required)).toBe(true);
      expect(operation.parameters.every(({ schema }) => typeof schema === 'object')).toBe(true);
      for (const scheme of operation.security.flatMap((needs) => Object.keys(needs))) {
        expect(document.components['securitySchemes']).toHaveProperty(scheme);
      }
      const statuses = Object.keys(operation.responses);
      expect(statuses.some((status) => /^[2345]\d\d$/.test(status))).toBe(true);
      for (const response of Object.values(operation.responses)) {
        if (!('$ref' in response)) expect(response.description).not.toBe('');
      }
    }
  }
  for (const [, reference] of JSON.stringify(document).matchAll(/"\$ref":"([^"]*)"/g)) {
    expect(document).toHaveProperty(reference!.slice(2).split('/'));
  }
  // A schema that is only a reference would say nothing, and to itself it would never end.
  for (const schema of Object.values(document.components['schemas']!)) expect(schema).not.toHaveProperty('$ref');
});

test('the document is also a page for people, under both prefixes, in which nothing runs', async () => {
  for (const path of ['/docs', '/api/docs']) {
    const response = await get(path);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('text/html; charset=utf-8');
    expect(response.headers.get('content-security-policy')).toMatch(/^default-src 'none'; style-src 'sha256-[^' ]+';/);
    const page = await response.text();
    for (const route of documented) expect(page).toContain(`<article id="${route.id}">`);
  }
});

test('the 22 endpoints of the interface are routes at their paths, and documented', () => {
  const endpoints = [
    'get /api/authz/transactions/{user_address}',
    'get /api/authz/transactions/app/{app_id}',
    'get /api/apps/{app_id}/collections/{collection}/data',
    'post /apps/{app_id}/views',
    'post /api/apps/{app_id}/blobs/{collection}',
    'get /health',
    'post /api/apps/{app_id}/payout/settings',
    'get /api/views/{app_id}/{view_name}/data',
    'get /api/apps/{app_id}/indexes/encrypted-quote',
    'get /apps/{app_id}/api_collections',
    'get /api/apps/{app_id}/retention/cost',
    'post /x402/verify',
    'get /api/skills/{app_id}/skills.md',
    'post /api/apps/{app_id}/payout/info',
    'post /api/apps/{app_id}/collections',
    'get /apps/{app_id}/queries',
    'get /api/apps/{app_id}/wallet',
    'get /api/apps/{app_id}/collections',
    'get /api/apps/{app_id}/indexes',
    'post /api/apps/{app_id}/payout/history',
    'get /api/applications/{app_id}',
    'get /api/tasks/{ticket_id}',
  ];
  const at = (line: string) =>
    routes.find(({ method, prefixes, path }) => `${method.toLowerCase()} ${prefixes[0]}${path}` === line);
  expect(endpoints).toHaveLength(22);
  expect(endpoints.filter((line) => at(line) === undefined)).toEqual([]);
  expect(endpoints.filter((line) => at(line)?.undocumented !== undefined)).toEqual([]);
});

test('health answers within a second and says 503 when every service is down', async () => {
  const response = await get('/health');
  expect(response.status).toBe(503);
  const health = (await response.json()) as { status: string; checks: Record<string, { status: string }> };
  expect(health.status).toBe('unhealthy');
  expect(Object.keys(health.checks)).toEqual(['gateway', 'data', 'blobs', 'finance', 'payments', 'tasks']);
  const { gateway: itself, ...services } = health.checks;
  expect(itself!.status).toBe('healthy');
  expect(Object.values(services).map(({ status }) => status)).toEqual(Array<string>(5).fill('unhealthy'));
  expect(JSON.stringify(health)).not.toContain(nowhere);
  expect((await get('/readyz')).status).toBe(503);
  expect((await get('/livez')).status).toBe(200);
});

test('every answer has a request id: the one that was sent, if it is one', async () => {
  const sent = async (id: string) =>
    (await get('/nowhere', { headers: { 'x-request-id': id } })).headers.get('x-request-id');
  expect(await sent('a.b-c_9')).toBe('a.b-c_9');
  expect(await sent('a b')).toMatch(/^[0-9a-f]{24}$/);
  expect(await sent('x'.repeat(65))).toMatch(/^[0-9a-f]{24}$/);
  expect((await get('/livez')).headers.get('x-request-id')).toMatch(/^[0-9a-f]{24}$/);
});

test('unknown paths are 404, unknown methods 405 with Allow; both prefixes and trailing slashes are the same', async () => {
  for (const path of ['/nowhere', '/api/nowhere', '/STORE', '/store/x', '/api/api/store', '/%2fstore']) {
    const response = await get(path);
    expect([path, response.status, await codeOf(response)]).toEqual([path, 404, 'NOT_FOUND']);
  }
  for (const path of ['/store', '/store/', '/api/store', '/api/store/']) {
    const response = await get(path);
    expect([path, response.status, await codeOf(response)]).toEqual([path, 405, 'METHOD_NOT_ALLOWED']);
    expect(response.headers.get('allow')).toBe('POST, OPTIONS');
  }
});

test('a literal step in a path does not hide what a parameter in its place stands for', async () => {
  // `POST …/views/sql` is a route of its own, and `sql` is also a name that a view may have.
  expect((await get('/apps/a/views/sql')).status).toBe(401);
  const patched = await get('/apps/a/views/sql', { method: 'PATCH' });
  expect([patched.status, patched.headers.get('allow')]).toEqual([405, 'POST, OPTIONS, GET, HEAD, PUT, DELETE']);
});

test('a browser of any origin may ask, with every header that is read, and see the ones that matter', async () => {
  const preflight = await get('/api/store', {
    method: 'OPTIONS',
    headers: { origin: 'https://example.org', 'access-control-request-method': 'POST' },
  });
  expect(preflight.status).toBe(204);
  expect(preflight.headers.get('access-control-allow-origin')).toBe('*');
  expect(preflight.headers.get('access-control-allow-methods')).toContain('POST');
  const allowed = preflight.headers.get('access-control-allow-headers')!.toLowerCase();
  for (const header of ['x-app-key', 'authorization', 'idempotency-key', 'if-match', 'range', 'x-payment']) {
    expect(allowed.split(', ')).toContain(header);
  }
  for (const header of ['traceparent', 'tracestate', 'baggage']) expect(allowed.split(', ')).toContain(header);
  for (const header of ['x-requested-with', 'cache-control', 'if-modified-since']) {
    expect(allowed.split(', ')).toContain(header);
  }
  const refused = await get('/api/store', { method: 'POST', headers: { origin: 'https://example.org' } });
  expect(refused.status).toBe(401);
  expect(refused.headers.get('access-control-allow-origin')).toBe('*');
  const exposed = refused.headers.get('access-control-expose-headers')!.split(', ');
  expect(exposed).toEqual(expect.arrayContaining(['X-Request-Id', 'ETag', 'Location', 'Idempotency-Replayed']));
  expect(refused.headers.get('x-content-type-options')).toBe('nosniff');
});

test('a service that is down is 503 with Retry-After, and nothing of it is named', async () => {
  const response = await get('/api/views/a/v/data');
  expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1']);
  expect(await response.text()).not.toContain('127.0.0.1');
});

test('what is not even HTTP is answered in the same shape', async () => {
  const cases: Array<[string, number, string]> = [
    ['GARBAGE\r\n\r\n', 400, 'MALFORMED_REQUEST'],
    ['GET / HTTP/9.9\r\n\r\n', 400, 'MALFORMED_REQUEST'],
    ['FOO / HTTP/1.1\r\nHost: x\r\n\r\n', 405, 'METHOD_NOT_ALLOWED'],
    ['CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n', 405, 'METHOD_NOT_ALLOWED'],
    [`GET / HTTP/1.1\r\nHost: x\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`, 431, 'HEADERS_TOO_LARGE'],
    ['GET / HTTP/1.1\r\nConnection: close\r\n\r\n', 400, 'VALIDATION_FAILED'],
    ['POST /store HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n', 400, 'MALFORMED_REQUEST'],
  ];
  for (const [bytes, status, code] of cases) {
    const answer = await exchange(bytes);
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(answer).toMatch(/\r\nX-Request-Id: [0-9a-f]{24}\r\n/);
    expect(answer.slice(answer.indexOf('\r\n\r\n'))).toContain(`"code":"${code}"`);
  }
});

test('a client that waits to be told to send its body is refused before it sends', async () => {
  const head = 'POST /store HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n';
  const answer = await exchange(head);
  expect(answer).toMatch(/^HTTP\/1\.1 401 /);
});

test('a body that does not come in time is 408', async () => {
  const impatient = await startGateway({ ...config, BODY_TIMEOUT_MS: 100 }, { log });
  const head = `POST /applications HTTP/1.1\r\nHost: x\r\nX-Operator-Key: ${config.OPERATOR_KEY}\r\nContent-Length: 9\r\n\r\n`;
  expect(await exchange(`${head}{`, impatient.port)).toMatch(/^HTTP\/1\.1 408 [^]*"code":"REQUEST_TIMEOUT"/);
  await impatient.stop();
});

test('a head that does not come in time is 408, though something comes all the while', async () => {
  const impatient = await startGateway({ ...config, HEAD_TIMEOUT_MS: 1_000 }, { log });
  const socket = connect(impatient.port, '127.0.0.1', () => socket.write('GET /livez HTTP/1.1\r\n'));
  let n = 0;
  const dripping = setInterval(() => socket.write(`X-${(n += 1)}: x\r\n`), 100);
  const answer = await new Promise<string>((resolve) =>
    socket.once('data', (chunk: Buffer) => resolve(chunk.toString())),
  );
  clearInterval(dripping);
  expect(answer).toMatch(/^HTTP\/1\.1 408 /);
  await impatient.stop();
});

test('a pipelined request whose connection ends before its turn is over, and gives back the bytes of its body', async () => {
  const budget = new KeyedBudget({ total: 1_000, perKey: { app: 1_000, address: 1_000 } });
  const bodies = new Bodies({ budget, reserveBytes: 0 }, config);
  const app = express();
  app.use(beginRequest({ config, log, isDraining: () => false }));
  const reading = new Promise<Outgoing>((resolve) => {
    app.post('/second', (request, response) => {
      const options = { limitBytes: 1_001, bodies, keys: { address: '127.0.0.1' } };
      void readBody(request, response, options).catch(() => {});
      // One byte is missing.
      request.once('data', () => resolve(response));
    });
  });
  // Never answered, so that the answer to the second one has to wait.
  app.get('/first', () => {});
  const server = createHttpServer(app, config);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const second = `POST /second HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n${'x'.repeat(1_000)}`;
  socket.write(`GET /first HTTP/1.1\r\nHost: x\r\n\r\n${second}`);
  const { cancellation: gone } = requestContextOf(await reading);
  expect(gone.aborted).toBe(false);
  expect(budget.counts().used).toBe(1_000);
  const over = new Promise<void>((resolve) => gone.addEventListener('abort', resolve));
  socket.destroy();
  await over;
  await new Promise((resolve) => server.close(resolve));
  expect(budget.counts().used).toBe(0);
});

test('a stop says so first, then lets what is under way be finished, and takes no more', async () => {
  const stopping = await startGateway({ ...config, DRAIN_DELAY_MS: 1_000 }, { log });
  const socket = connect(stopping.port, '127.0.0.1');
  const received: string[] = [];
  const closed = new Promise((resolve) => socket.on('close', resolve));
  const told = new Promise((resolve) => {
    socket.on('data', (chunk: Buffer) => {
      received.push(chunk.toString());
      resolve(undefined);
    });
  });
  const head = ['Content-Type: application/json', 'Transfer-Encoding: chunked', 'Expect: 100-continue'].join('\r\n');
  socket.write(`POST /applications HTTP/1.1\r\nHost: x\r\nX-Operator-Key: ${config.OPERATOR_KEY}\r\n${head}\r\n\r\n`);
  // From here on the gateway waits for the body: the request is under way.
  await told;
  const stopped = stopping.stop();
  const ready = await fetch(`${stopping.url}/readyz`);
  expect([ready.status, await ready.json()]).toEqual([503, { status: 'stopping' }]);
  expect(ready.headers.get('connection')).toBe('close');
  await untilRefused(stopping.port);
  socket.write(`${(70_000).toString(16)}\r\n${'x'.repeat(70_000)}\r\n0\r\n\r\n`);
  await stopped;
  await closed;
  expect(received.join('')).toMatch(/^HTTP\/1\.1 100 [^]*HTTP\/1\.1 413 [^]*"code":"PAYLOAD_TOO_LARGE"/);
});

/** Until nothing listens on the port any more. */
async function untilRefused(port: number): Promise<void> {
  const isOpen = () =>
    new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => resolve(true));
      socket.on('error', () => resolve(false)).on('connect', () => socket.destroy());
    });
  while (await isOpen()) await new Promise((resolve) => setTimeout(resolve, 20));
}
