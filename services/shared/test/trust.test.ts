import type { KeyObject } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
// eslint-disable-next-line no-restricted-imports -- what is sent here, no client of ours would send
import { Client, credentials, Metadata, status, type ServiceError as GrpcError } from '@grpc/grpc-js';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import { signPermit, type DownloadPermit } from '@granary/shared/trust/transfer-permit';
import type { Batch } from '@granary/shared/gen/granary/mux/v1/Batch';
import { createAuthorization } from '@granary/shared/rpc/authorization';
import { openClient } from '@granary/shared/grpc/client';
import { startServer } from '@granary/shared/grpc/server';
import type { Implementation } from '@granary/shared/rpc/implementation';
import { muxDefinition } from '@granary/shared/mux/protocol';
import { openSessionCredentials } from '@granary/shared/mux/credentials';
import { newCall } from '@granary/shared/rpc/types';
import type { Logger } from '@granary/shared/logger';
import { createAuthority, type Certificate } from '@granary/testing/certificates';
import { callersByPath } from '@granary/shared/rpc/access';
import { trustEnvironments } from '../src/trust/environments';
import { createGuard } from '@granary/shared/trust/guard';
import { callersOf, serviceNames, type ServiceName } from '@granary/shared/trust/services';
import type { TrustSettings } from '@granary/shared/trust/settings';
import { readableBy } from '@granary/shared/bus/subscribers';
import { callKey, clockSkewMs, secretOf, signToken, tokenHeader, tokenLifetimeMs } from '@granary/shared/trust/token';
import { openTrust } from '@granary/shared/trust/trust';
import pino from 'pino';
import { limitMs } from '@granary/testing/speed';
import { dataDefinition, log, stops, multiplexed, wishes } from './support/mux-fixture';

afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

const root = 'the secret from which the tests derive all others';
const environments = trustEnvironments(root);
const keyOf = (caller: ServiceName, callee: ServiceName) => callKey(secretOf(root, caller), caller, callee);
const store = dataDefinition.Store;
const carry = '/granary.mux.v1.Mux/Stream';

/** What a log was told, a line for each. */
function recorded(): { log: Logger; lines: Array<Record<string, unknown>>; text: () => string } {
  const lines: Array<Record<string, unknown>> = [];
  const sink = new Writable({
    write: (chunk: Buffer, _, done) => {
      lines.push(JSON.parse(chunk.toString()) as Record<string, unknown>);
      done();
    },
  });
  return { log: pino(sink), lines, text: () => JSON.stringify(lines) };
}

/** Data as its process serves it: the gateway may do what it does there, tasks may ask for commits. */
async function serveData(settings: TrustSettings = environments.data, into: Logger = log) {
  const service = wishes();
  const data: Implementation = {
    ...service.implementation,
    access: { gateway: ['store', 'listDocuments', 'readCollection', 'verifyKey'], tasks: ['getCommit'] },
  };
  const trust = openTrust('data', settings, into).server();
  const server = await startServer('127.0.0.1:0', [data], into, trust);
  stops.push(() => server.stop());
  return { ...service, address: server.address, server, guard: trust.guard };
}

/** The client of a service that was told this, with one stream. */
function clientOf(service: ServiceName, address: string, settings: TrustSettings = environments[service]) {
  const trust = openTrust(service, settings, log);
  const opened = openClient(
    dataDefinition,
    { address },
    { log, multiplexed, mux: { streams: 1 }, credentials: () => trust.towards('data') },
  );
  stops.push(() => opened.close());
  const body = Buffer.from('{}');
  return {
    ...opened,
    /** Goes on the stream. */
    list: (appId = 'films') => opened.client.listDocuments({ appId, body }, newCall('test', limitMs(5_000))),
    /** Is a unary call. */
    commit: () => opened.client.getCommit({ ticketId: 'a' }, newCall('test', limitMs(5_000))),
  };
}

/** A unary call with this token, or none; resolves to the code and the message of the answer. */
function rawCall(address: string, token: string | undefined, request: object = {}, method = store) {
  const client = new Client(address, credentials.createInsecure());
  const metadata = new Metadata();
  if (token !== undefined) metadata.set(tokenHeader, token);
  return new Promise<{ code: string; message: string }>((resolve) => {
    const { path, requestSerialize, responseDeserialize } = method;
    client.makeUnaryRequest(
      ...[path, requestSerialize as (value: object) => Buffer, responseDeserialize, request, metadata],
      { deadline: Date.now() + limitMs(5_000) },
      (error: GrpcError | null) => {
        client.close();
        resolve({ code: status[error?.code ?? 0]!, message: error?.details ?? '' });
      },
    );
  });
}

/** A stream with this token; resolves to the code with which it ends, or to OK once it stands. */
function rawStream(address: string, token: string | undefined) {
  const client = new Client(address, credentials.createInsecure());
  const metadata = new Metadata();
  if (token !== undefined) metadata.set(tokenHeader, token);
  const same = (bytes: Buffer) => bytes;
  const stream = client.makeBidiStreamRequest(carry, same, same, metadata);
  return new Promise<string>((resolve) => {
    const end = (code: number) => {
      resolve(status[code]!);
      stream.cancel();
      client.close();
    };
    stream.on('error', (error: GrpcError) => end(error.code));
    stream.on('metadata', () => setTimeout(end, 200, 0));
    stream.on('data', () => {});
  });
}

const honest = { caller: 'gateway', audience: 'data', app: '', method: store.path } as const;
const key = keyOf('gateway', 'data');
/** With another signature. */
const altered = (token: string) => token.slice(0, -1) + (token.endsWith('A') ? 'E' : 'A');
/** With the same one, in which a bit is set that means nothing. */
const spelledAnew = (token: string) => token.slice(0, -1) + String.fromCharCode(token.charCodeAt(token.length - 1) + 1);

const refusedTokens: Array<[what: string, token: (method: string) => string | undefined]> = [
  ['no token', () => undefined],
  ['an empty one', () => ''],
  ['what is none', () => 'Bearer of good news'],
  ['one of a version to come', (method) => signToken(key, { ...honest, method }).replace('v1.', 'v2.')],
  ['one that has expired', (method) => signToken(key, { ...honest, method }, Date.now() - tokenLifetimeMs - 1_000)],
  ['one that is good for too long', (method) => signToken(key, { ...honest, method }, Date.now() + 120_000)],
  [
    'one for another service',
    (method) => signToken(keyOf('gateway', 'blobs'), { ...honest, method, audience: 'blobs' }),
  ],
  [
    'one for another service, signed for this one',
    (method) => signToken(key, { ...honest, method, audience: 'blobs' }),
  ],
  ['one whose audience was rewritten', (method) => signToken(keyOf('gateway', 'blobs'), { ...honest, method })],
  ['one whose caller was rewritten', (method) => signToken(keyOf('tasks', 'data'), { ...honest, method })],
  [
    'one of a service that is not trusted',
    (method) => signToken(keyOf('data', 'data'), { ...honest, method, caller: 'data' }),
  ],
  [
    'one of a service that does not exist',
    (method) => signToken(key, { ...honest, method }).replace('gateway', 'nobody'),
  ],
  ['one for another method', () => signToken(key, { ...honest, method: dataDefinition.GetJob.path })],
  [
    'one that was forged',
    (method) => signToken(callKey('a guess that is as long as a secret', 'gateway', 'data'), { ...honest, method }),
  ],
  ['one that was altered', (method) => altered(signToken(key, { ...honest, method }))],
  ['one that is spelled in another way', (method) => spelledAnew(signToken(key, { ...honest, method }))],
  [
    'one that was lengthened',
    (method) => signToken(key, { ...honest, method }).replace(/\.(\d{10})\./, (_, end) => `.${Number(end) + 9}.`),
  ],
];

test.each(refusedTokens)(
  'a call with %s is refused, logged without the token, and reaches no handler',
  async (_, make) => {
    const { log: kept, lines, text } = recorded();
    const data = await serveData(environments.data, kept);
    const token = make(store.path);
    expect(await rawCall(data.address, token)).toEqual({ code: 'UNAUTHENTICATED', message: 'The caller is not known' });
    expect(data.seen).toEqual([]);
    expect(lines).toMatchObject([{ msg: 'a call was refused', method: store.path, times: 1 }]);
    if (token) expect(text()).not.toContain(token.split('.').at(-1)!.slice(0, 20));
  },
);

test.each(refusedTokens)('a stream with %s is refused', async (_, make) => {
  const data = await serveData();
  expect(await rawStream(data.address, signToken(key, { ...honest, method: carry }))).toBe('OK');
  expect(await rawStream(data.address, make(carry))).toBe('UNAUTHENTICATED');
  expect(data.guard.refusals().size).toBe(1);
});

test('a caller that is believed gets what it may have, and nothing else', async () => {
  const data = await serveData();
  const ofTasks = (method: { path: string }) =>
    signToken(keyOf('tasks', 'data'), { caller: 'tasks', audience: 'data', app: '', method: method.path });
  const { GetCommit, DeleteApplication } = dataDefinition;
  expect(await rawCall(data.address, ofTasks(store))).toEqual({
    code: 'PERMISSION_DENIED',
    message: 'The caller may not do this',
  });
  expect((await rawCall(data.address, ofTasks(DeleteApplication), {}, DeleteApplication as never)).code).toBe(
    'PERMISSION_DENIED',
  );
  expect(data.seen).toEqual([]);
  // The handler is reached, and stumbles over a request that it does not know.
  expect((await rawCall(data.address, ofTasks(GetCommit), {}, GetCommit as never)).code).toBe('INTERNAL');
  expect(data.guard.refusals()).toEqual(new Map([['not allowed', 2]]));
});

test('a call about another app than its token says is refused', async () => {
  const data = await serveData();
  const token = signToken(key, { ...honest, app: 'films' });
  expect((await rawCall(data.address, token, { appId: 'books' })).code).toBe('UNAUTHENTICATED');
  expect(data.seen).toEqual([]);
});

test('a request that is too large to be waited for is not read before its token is believed', async () => {
  const data = await serveData();
  const request = { appId: 'films', body: Buffer.alloc(30 * 1024 * 1024) };
  expect((await rawCall(data.address, undefined, request)).code).toBe('UNAUTHENTICATED');
});

test('clocks may differ as far as is said, and no further', () => {
  let nowMs = 1_800_000_000_000;
  const guard = createGuard('data', new Map([['gateway', [key]]]), log, () => nowMs);
  const token = signToken(key, honest, nowMs);
  const at = (differenceMs: number) => {
    nowMs = 1_800_000_000_000 + differenceMs;
    return () => guard.authenticate(token, store.path);
  };
  expect(at(0)()).toMatchObject({ caller: 'gateway', app: '' });
  expect(at(tokenLifetimeMs - 1_000)).not.toThrow();
  expect(at(-clockSkewMs)).not.toThrow();
  expect(at(tokenLifetimeMs)).toThrow('not known');
  expect(at(-clockSkewMs - 1_000)).toThrow('not known');
  expect(guard.refusals()).toEqual(
    new Map([
      ['expired token', 1],
      ['token from the future', 1],
    ]),
  );
});

test('the same refusal is logged once in ten seconds with its number, another one at once; all are counted', () => {
  let nowMs = 1_800_000_000_000;
  const { log: kept, lines } = recorded();
  const guard = createGuard('data', new Map([['gateway', [key]]]), kept, () => nowMs);
  const refuse = (token: string | undefined, path = store.path) =>
    expect(() => guard.authenticate(token, path)).toThrow('not known');
  for (let time = 0; time < 1_000; time++) refuse(undefined);
  refuse('v1.nonsense');
  refuse(undefined, dataDefinition.GetJob.path);
  expect(lines).toHaveLength(3);
  nowMs += 10_000;
  refuse(undefined);
  expect(lines).toHaveLength(4);
  expect(lines[3]).toMatchObject({ why: 'no token', times: 1_000, method: store.path });
  expect(guard.refusals().get('no token')).toBe(1_002);
});

test('a caller is known by its old and its new secret while the secret is being changed', async () => {
  const renewed = trustEnvironments('another secret from which others are derived');
  const both = `${environments.data.TRUSTED_CALLERS},${renewed.data.TRUSTED_CALLERS}`;
  const data = await serveData({ TRUSTED_CALLERS: both });
  const [old, fresh] = [clientOf('gateway', data.address), clientOf('gateway', data.address, renewed.gateway)];
  await Promise.all([old.list(), fresh.list(), old.list('books')]);
  const after = await serveData({ TRUSTED_CALLERS: renewed.data.TRUSTED_CALLERS });
  await expect(clientOf('gateway', after.address).list()).rejects.toMatchObject({ code: 'INTERNAL' });
  await clientOf('gateway', after.address, renewed.gateway).list();
});

test('with one secret for all, services know each other as with secrets of their own', async () => {
  const settings = { INTERNAL_SECRET: root };
  const data = await serveData(settings);
  await clientOf('gateway', data.address, settings).list();
  await clientOf('gateway', data.address).list();
  await expect(clientOf('blobs', data.address, settings).list()).rejects.toMatchObject({ code: 'INTERNAL' });
});

test('a refusal between services is not the fault of whoever asked the first of them', async () => {
  const data = await serveData();
  const refused = [() => clientOf('tasks', data.address).list(), () => clientOf('gateway', data.address).commit()];
  for (const ask of refused) {
    const ours = await ask().catch((error: unknown) => error);
    expect(ours).toMatchObject({ code: 'INTERNAL', reason: 'INTERNAL', cause: { code: 'PERMISSION_DENIED' } });
  }
});

test('who subscribes reads under its own name', async () => {
  const seen: string[] = [];
  const read = async ({ consumer }: { consumer: string }) => {
    seen.push(consumer);
    return { events: [], next: null, stalledMs: '0', readAtMs: '0', signatures: '' };
  };
  const outbox: Implementation<OutboxDefinition> = {
    definition: outboxDefinition,
    handlers: { read, readAggregate: async () => ({ events: [] }) },
  };
  const trust = openTrust('data', environments.data, log).server();
  const server = await startServer('127.0.0.1:0', [readableBy(['tasks', 'blobs'], outbox)], log, trust);
  stops.push(() => server.stop());
  // On a stream the same is asked as of a unary call.
  for (const carried of [[], ['read']]) {
    const readAs = async (service: ServiceName, consumer: string) => {
      const credentialsOf = () => openTrust(service, environments[service], log).towards('data');
      const opened = openClient(
        outboxDefinition,
        { address: server.address },
        { log, credentials: credentialsOf, multiplexed: carried },
      );
      const request = { consumer, after: null, limit: 1, topics: [], waitMs: 0 };
      return opened.client.read(request, newCall('test', limitMs(5_000))).finally(() => opened.close());
    };
    for (const consumer of ['tasks', 'tasks-data']) await readAs('tasks', consumer);
    expect(seen.splice(0)).toEqual(['tasks', 'tasks-data']);
    for (const [service, consumer] of [
      ['tasks', 'blobs'],
      ['tasks', 'tasksdata'],
      ['blobs', 'tasks-data'],
      ['finance', 'finance-data'],
    ] as const) {
      await expect(readAs(service, consumer)).rejects.toMatchObject({ cause: { code: 'PERMISSION_DENIED' } });
    }
    expect(seen).toEqual([]);
  }
});

describe('on a stream', () => {
  test('each call is one that the caller of the stream may make', async () => {
    const data = await serveData();
    const gateway = clientOf('gateway', data.address);
    await gateway.list();
    await expect(clientOf('tasks', data.address).list()).rejects.toMatchObject({
      cause: { code: 'PERMISSION_DENIED' },
    });
    expect(data.seen).toHaveLength(1);
    expect(data.seen[0]!.call.caller).toBe('gateway');
  });

  test('a stream that is not believed fails its calls at once with what was said', async () => {
    const data = await serveData();
    const stranger = clientOf('gateway', data.address, { SERVICE_SECRET: 'a guess that is as long as a secret' });
    const calls = Array.from({ length: 5 }, () => stranger.list().catch((error: unknown) => error));
    for (const error of await Promise.all(calls))
      expect(error).toMatchObject({ code: 'INTERNAL', cause: { code: 'UNAUTHENTICATED' } });
    expect(data.seen).toEqual([]);
  });

  test('the token is renewed as long as the stream lives', async () => {
    const realNow = Date.now;
    let aheadMs = 0;
    const clock = jest.spyOn(Date, 'now').mockImplementation(() => realNow() + aheadMs);
    try {
      const data = await serveData();
      const gateway = clientOf('gateway', data.address);
      await gateway.list();
      const before = gateway.muxCounts()!;
      // Each time the token that the server had last has run out.
      for (let times = 0; times < 4; times++) {
        aheadMs += tokenLifetimeMs + 5_000;
        await gateway.list();
      }
      expect(gateway.muxCounts()).toEqual(before);
      expect(data.guard.refusals().size).toBe(0);
    } finally {
      clock.mockRestore();
    }
  });

  test('what comes on a stream whose token has run out is refused, until a new one comes', async () => {
    let nowMs = Date.now();
    const { log: kept, lines } = recorded();
    const tasksKey = keyOf('tasks', 'data');
    const keys = new Map<ServiceName, KeyObject[]>([
      ['gateway', [key]],
      ['tasks', [tasksKey]],
    ]);
    const guard = createGuard('data', keys, kept, () => nowMs);
    const methods = new Map([['/known', 'a method']]);
    const admitted = createAuthorization(guard, [], carry);
    const token = () => signToken(key, { ...honest, method: carry }, nowMs);
    const session = openSessionCredentials(admitted, token(), methods);
    expect(session.isExpired(nowMs)).toBe(false);
    nowMs += tokenLifetimeMs;
    expect(session.isExpired(nowMs)).toBe(true);
    expect(session.expired()).toMatchObject({ code: 'UNAUTHENTICATED', reason: 'CALL_REFUSED' });
    session.renew(token().replace('v1.', 'v2.'));
    session.renew(signToken(tasksKey, { ...honest, caller: 'tasks', method: carry }, nowMs));
    expect(session.isExpired(nowMs)).toBe(true);
    session.renew(token());
    expect(session.isExpired(nowMs)).toBe(false);
    expect(lines.map(({ why }) => why)).toEqual(['expired token', 'malformed token']);
  });

  test('a stream of another release that sends no new token is refused once its own has run out', async () => {
    const realNow = Date.now;
    let aheadMs = 0;
    const clock = jest.spyOn(Date, 'now').mockImplementation(() => realNow() + aheadMs);
    try {
      const data = await serveData();
      const client = new Client(data.address, credentials.createInsecure());
      stops.push(() => client.close());
      const metadata = new Metadata();
      metadata.set(tokenHeader, signToken(key, { ...honest, method: carry }));
      const { requestSerialize, responseDeserialize } = muxDefinition.Stream;
      const stream = client.makeBidiStreamRequest(carry, requestSerialize, responseDeserialize, metadata);
      stream.on('error', () => {});
      const ask = async (id: number) => {
        const request = dataDefinition.ListDocuments.requestSerialize({ appId: 'x', body: Buffer.from('{}') });
        const call = { id, method: dataDefinition.ListDocuments.path, timeoutMs: 5_000, requestId: '', request };
        stream.write({ calls: [call], cancelled: [] });
        const [{ frames }] = (await once(stream, 'data')) as [Batch];
        return status[frames[0]!.failure?.code ?? 0];
      };
      expect(await ask(1)).toBe('OK');
      aheadMs = tokenLifetimeMs;
      expect(await ask(2)).toBe('UNAUTHENTICATED');
      expect(data.seen).toHaveLength(1);
      stream.cancel();
    } finally {
      clock.mockRestore();
    }
  });
});

describe('TLS', () => {
  async function files(certificate: Partial<Certificate>, ca: string): Promise<TrustSettings> {
    const directory = await mkdtemp(join(tmpdir(), 'granary-tls-'));
    const at = async (name: string, content: string) => {
      await writeFile(join(directory, name), content);
      return join(directory, name);
    };
    return {
      TLS_CA_FILE: await at('ca.pem', ca),
      ...(certificate.cert && { TLS_CERT_FILE: await at('cert.pem', certificate.cert) }),
      ...(certificate.key && { TLS_KEY_FILE: await at('key.pem', certificate.key) }),
    };
  }
  const both = async (settings: TrustSettings, of: TrustSettings) => {
    const data = await serveData({ ...environments.data, ...settings });
    return clientOf('gateway', data.address.replace('127.0.0.1', 'localhost'), { ...environments.gateway, ...of });
  };
  const outcome = (call: Promise<unknown>) =>
    call.then(() => 'answered').catch((error: { code: string }) => error.code);

  test('unary and multiplexed calls go to a server with a certificate of the authority', async () => {
    const authority = createAuthority();
    const server = await files(authority.issue(), authority.cert);
    const client = await both(server, await files({}, authority.cert));
    expect(await outcome(client.list())).toBe('answered');
    const unary = client.client.store(
      { appId: 'x', body: Buffer.alloc(70_000, ' ') } as never,
      newCall('test', limitMs(5_000)),
    );
    // It has got as far as the handler, which finds no wish in it.
    expect(await outcome(unary)).toBe('INTERNAL');
  });

  test.each<[what: string, certificate: (of: ReturnType<typeof createAuthority>) => Certificate]>([
    ['of another authority', () => createAuthority().issue()],
    ['for another host', (authority) => authority.issue({ names: ['example.org'], addresses: ['127.0.0.9'] })],
    ['that has expired', (authority) => authority.issue({ days: -1 })],
  ])('nothing is sent to a server with a certificate %s', async (_, certificate) => {
    const authority = createAuthority();
    const server = await files(certificate(authority), authority.cert);
    const data = await serveData({ ...environments.data, ...server });
    const client = clientOf('gateway', data.address.replace('127.0.0.1', 'localhost'), {
      ...environments.gateway,
      ...(await files({}, authority.cert)),
    });
    expect(await outcome(client.list())).toBe('UNAVAILABLE');
    expect(await outcome(client.commit())).toBe('UNAVAILABLE');
    expect(data.seen).toEqual([]);
    expect(data.guard.refusals().size).toBe(0);
  });

  test('a caller without TLS gets nowhere with a server that has it, nor the other way round', async () => {
    const authority = createAuthority();
    const server = await files(authority.issue(), authority.cert);
    expect(await outcome((await both(server, {})).list())).toBe('UNAVAILABLE');
    expect(await outcome((await both({}, await files({}, authority.cert))).list())).toBe('UNAVAILABLE');
  });

  test('a server that verifies its callers wants a certificate of them', async () => {
    const authority = createAuthority();
    const server = { ...(await files(authority.issue(), authority.cert)), TLS_VERIFY_CLIENTS: true };
    expect(await outcome((await both(server, await files(authority.issue(), authority.cert))).list())).toBe('answered');
    expect(await outcome((await both(server, await files({}, authority.cert))).list())).toBe('UNAVAILABLE');
    const strange = await files(createAuthority().issue(), authority.cert);
    expect(await outcome((await both(server, strange)).list())).toBe('UNAVAILABLE');
  });
});

describe('what a service is told', () => {
  const open = (settings: TrustSettings) => openTrust('data', settings, log);
  const hex = 'ab'.repeat(32);

  test.each<[what: string, settings: TrustSettings, name: string]>([
    ['nothing', {}, 'TRUSTED_CALLERS'],
    ['only its own secret', { SERVICE_SECRET: root }, 'TRUSTED_CALLERS'],
    ['one secret for all and one of its own', { INTERNAL_SECRET: root, SERVICE_SECRET: root }, 'INTERNAL_SECRET'],
    ['a secret and its file', { INTERNAL_SECRET: root, INTERNAL_SECRET_FILE: '/x' }, 'INTERNAL_SECRET'],
    ['a file that is not there', { TRUSTED_CALLERS_FILE: '/nowhere/at/all' }, 'TRUSTED_CALLERS_FILE'],
    ['a caller that does not exist', { TRUSTED_CALLERS: `nobody:${hex}` }, 'TRUSTED_CALLERS'],
    ['a key that is too short', { TRUSTED_CALLERS: 'gateway:abcd' }, 'TRUSTED_CALLERS'],
    [
      'a certificate without its key',
      { INTERNAL_SECRET: root, TLS_CA_FILE: '/x', TLS_CERT_FILE: '/y' },
      'TLS_KEY_FILE',
    ],
    [
      'a certificate without an authority',
      { INTERNAL_SECRET: root, TLS_CERT_FILE: '/x', TLS_KEY_FILE: '/y' },
      'TLS_CA',
    ],
    ['to verify callers without TLS', { INTERNAL_SECRET: root, TLS_VERIFY_CLIENTS: true }, 'TLS_VERIFY_CLIENTS'],
  ])('%s is not enough, which is said without a value', (_, settings, name) => {
    const start = () => open(settings).server();
    expect(start).toThrow(name);
    expect(start).not.toThrow(new RegExp(`${root}|${hex}|abcd`));
  });

  test('secrets and keys may be in files', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'granary-secrets-'));
    await writeFile(join(directory, 'callers'), environments.data.TRUSTED_CALLERS!.replaceAll(',', '\n') + '\n');
    await writeFile(join(directory, 'secret'), `${environments.gateway.SERVICE_SECRET}\n`);
    const data = await serveData({ TRUSTED_CALLERS_FILE: join(directory, 'callers') });
    await clientOf('gateway', data.address, { SERVICE_SECRET_FILE: join(directory, 'secret') }).list();
  });

  test('without a secret it calls nobody', () => {
    expect(() => open({ TRUSTED_CALLERS: `gateway:${hex}` }).towards('blobs')).toThrow('SERVICE_SECRET');
  });

  test('no service gets a key with which it could call in the name of another', () => {
    for (const service of serviceNames) {
      const held = JSON.stringify(environments[service]);
      for (const other of serviceNames) {
        if (other === service) continue;
        expect(held).not.toContain(secretOf(root, other));
        for (const callee of serviceNames) {
          if (callee === service) continue;
          expect(held).not.toContain(keyOf(other, callee).export().toString('hex'));
        }
      }
      expect(held).not.toContain(root);
    }
  });
});

test('a permit is good on any copy of blobs, until it expires, and only when the gateway has signed it', () => {
  let nowMs = 1_800_000_000_000;
  const keys = new Map(callersOf.blobs.map((caller) => [caller, [keyOf(caller, 'blobs')]]));
  const { log: kept, lines, text } = recorded();
  const copies = [1, 2].map(() => createGuard('blobs', keys, kept, () => nowMs));
  const permit: DownloadPermit & { expiresAtMs: number } = {
    op: 'read',
    appId: 'films',
    collection: 'posters',
    blobId: 'b',
    expiresAtMs: nowMs + 30_000,
  };
  const signed = openTrust('gateway', environments.gateway, log).towards('blobs').permit(permit);
  for (const copy of copies) expect(copy.permit(signed)).toEqual(permit);
  const elsewhere = signPermit(keyOf('gateway', 'data'), permit);
  const finances = signPermit(keyOf('finance', 'blobs'), permit);
  const token = signToken(keyOf('gateway', 'blobs'), { ...honest, audience: 'blobs' });
  for (const text of [undefined, '', elsewhere, finances, token, altered(signed), spelledAnew(signed), `${signed}.x`])
    expect(() => copies[0]!.permit(text)).toThrow('not known');
  nowMs += 30_000;
  expect(() => copies[1]!.permit(signed)).toThrow('not known');
  expect(copies[0]!.refusals().get('no valid permit')).toBe(8);
  expect(lines).toHaveLength(2);
  expect(text()).not.toContain(signed.slice(0, 30));
});

test('an access list that names a method that does not exist is a mistake that is found at the start', () => {
  expect(() => callersByPath([{ definition: dataDefinition, access: { gateway: ['stores'] } }])).toThrow('stores');
});
