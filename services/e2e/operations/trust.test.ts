import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request as requestOverTls } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
// eslint-disable-next-line no-restricted-imports -- what is sent here, no client of ours would send
import { Client, credentials, Metadata, status, type ServiceError as GrpcError } from '@grpc/grpc-js';
import { blobsConfig } from '@granary/blobs/config';
import { startBlobs, type RunningBlobs } from '@granary/blobs/service';
import { dataConfig } from '@granary/data/config';
import { startData } from '@granary/data/service';
import { financeConfig } from '@granary/finance/config';
import { startFinance } from '@granary/finance/service';
import { paymentsConfig } from '@granary/payments/config';
import { startPayments } from '@granary/payments/service';
import { readConfig } from '@granary/shared/config';
import { permitHeader, type UploadPermit } from '@granary/shared/trust/transfer-permit';
import { loadService } from '@granary/shared/rpc/protos';
import type { ServiceDefinition } from '@granary/shared/rpc/types';
import { newTicket } from '@granary/shared/ids';
import { stopAll } from '@granary/shared/service/lifecycle';
import { createLogger } from '@granary/shared/logger';
import type { RunningService } from '@granary/shared/service/start';
import { createAuthority } from '@granary/testing/certificates';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { callersByPath } from '@granary/shared/rpc/access';
import { trustEnvironments } from '@granary/shared/trust/environments';
import { callersOf, serviceNames, type ServiceName } from '@granary/shared/trust/services';
import { callKey, secretOf, signToken, tokenHeader } from '@granary/shared/trust/token';
import { openTrust } from '@granary/shared/trust/trust';
import { tasksConfig } from '@granary/tasks/config';
import { startTasks } from '@granary/tasks/service';
import { limitMs } from '@granary/testing/speed';
import { databaseServices, type DatabaseService } from '@granary/local/start/constellation';
import { newApp } from '../support/granary';
import { startGranary } from '../support/own-granary';

const root = 'the secret from which the tests derive all others';
const environments = trustEnvironments(root);
const log = createLogger('test', 'silent');
const stops: Array<() => Promise<void>> = [];

let directory: string;
let services: Record<DatabaseService, RunningService>;
let blobs: RunningBlobs;
let otherBlobs: RunningBlobs;

/** The services as processes of their own run them: over the wire, each with its own secret. */
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'granary-trust-'));
  stops.push(() => rm(directory, { recursive: true, force: true }));
  const started = <S extends RunningService>(service: S) => {
    stops.push(() => service.stop());
    return service;
  };
  const common = async (service: DatabaseService) => ({
    DATABASE_URL: (await testDatabase()).url,
    ...environments[service],
  });
  const ofPayments = { ...(await common('payments')), FINANCE_ADDRESS: '127.0.0.1:1', DATA_ADDRESS: '127.0.0.1:1' };
  const payments = started(await startPayments(readConfig(paymentsConfig, ofPayments), { log }));
  const skills = { SKILLS_DIRECTORY: join(directory, 'skills') };
  const data = started(await startData(readConfig(dataConfig, { ...(await common('data')), ...skills }), { log }));
  const at = { DATA_ADDRESS: data.address!, PAYMENTS_ADDRESS: payments.address! };
  const ofBlobs = { ...(await common('blobs')), ...at, HTTP_LISTEN: '127.0.0.1:0', OBJECTS_DIR: directory };
  blobs = started(await startBlobs(readConfig(blobsConfig, ofBlobs), { log }));
  otherBlobs = started(await startBlobs(readConfig(blobsConfig, ofBlobs), { log }));
  const ofFinance = { ...(await common('finance')), ...at, BLOBS_ADDRESS: blobs.address! };
  const keyFile = { KEY_FILE: join(directory, 'keys', 'seed'), KEY_FILE_CREATE: 'true' };
  const finance = started(await startFinance(readConfig(financeConfig, { ...ofFinance, ...keyFile }), { log }));
  const tasks = started(await startTasks(readConfig(tasksConfig, { ...(await common('tasks')), ...at }), { log }));
  services = { payments, data, blobs, finance, tasks };
});
afterAll(() => stopAll(stops));

const keyOf = (caller: ServiceName, callee: ServiceName) => callKey(secretOf(root, caller), caller, callee);

/** Every method of the protos but the stream, by its path, with the services that serve it. */
function methods(): Map<string, DatabaseService[]> {
  const protos = join(__dirname, '../../../protos');
  const found = new Map<string, DatabaseService[]>();
  for (const name of readdirSync(protos)) {
    const text = readFileSync(join(protos, name, 'v1', `${name}.proto`), 'utf8');
    for (const [, service = ''] of text.matchAll(/^service (\w+)/gm)) {
      for (const { path, requestStream } of Object.values(loadService<ServiceDefinition>(name, service)))
        if (!requestStream) found.set(path, []);
    }
  }
  for (const service of databaseServices) {
    for (const { definition } of services[service].implementations)
      for (const { path } of Object.values(definition)) found.get(path)!.push(service);
  }
  return found;
}

/** Asks with an empty request but for the name of a consumer; resolves to how the call was refused, or `let in`. */
function ask(client: Client, path: string, token: string | undefined, consumer = ''): Promise<string> {
  // The number of its field.
  const tag = path.endsWith('/ReadAggregate') ? 0x2a : 0x0a;
  const request = consumer === '' ? Buffer.alloc(0) : Buffer.from([tag, consumer.length, ...Buffer.from(consumer)]);
  const metadata = new Metadata();
  if (token !== undefined) metadata.set(tokenHeader, token);
  return new Promise((resolve) => {
    client.makeUnaryRequest(
      ...[path, () => request, (bytes: Buffer) => bytes, {}, metadata],
      { deadline: Date.now() + limitMs(10_000) },
      // A refusal between services is told from one of the handlers by its reason.
      (error: GrpcError | null) =>
        resolve(error?.metadata?.get('x-reason')[0] === 'CALL_REFUSED' ? status[error.code] : 'let in'),
    );
  });
}

test('every method accepts its permitted callers and no others, whatever token they have', async () => {
  let letIn = 0;
  let refused = 0;
  const served = methods();
  for (const service of databaseServices) {
    const callers = callersByPath(services[service].implementations);
    const client = new Client(services[service].address!, credentials.createInsecure());
    for (const [path, by] of served) {
      if (!by.includes(service)) continue;
      for (const caller of serviceNames) {
        const mayCall = callers.get(path)!.has(caller);
        const claims = { caller, audience: service, app: '', method: path } as const;
        const consumer = path.includes('.Outbox/Read') ? caller : '';
        const outcome = await ask(client, path, signToken(keyOf(caller, service), claims), consumer);
        const known = callersOf[service].includes(caller);
        const expected = mayCall ? 'let in' : known ? 'PERMISSION_DENIED' : 'UNAUTHENTICATED';
        expect([path, caller, outcome]).toEqual([path, caller, expected]);
        if (mayCall) letIn++;
        else refused++;
        if (!mayCall) continue;
        // The same caller with a token that is not quite right.
        const elsewhere = callersOf.payments.includes(caller) ? 'payments' : 'data';
        const wrong = [
          signToken(keyOf(caller, service), claims, Date.now() - 120_000),
          signToken(keyOf(caller, service), { ...claims, app: 'films' }),
          signToken(keyOf(caller, service), { ...claims, method: `${path}s` }),
          ...(elsewhere === service
            ? []
            : [
                signToken(keyOf(caller, elsewhere), { ...claims, audience: elsewhere }),
                signToken(keyOf(caller, elsewhere), claims),
              ]),
        ];
        for (const token of wrong) expect([path, await ask(client, path, token)]).toEqual([path, 'UNAUTHENTICATED']);
      }
      expect([path, await ask(client, path, undefined)]).toEqual([path, 'UNAUTHENTICATED']);
    }
    client.close();
  }
  expect([...served].filter(([, by]) => by.length === 0)).toEqual([]);
  expect(served.size).toBeGreaterThan(40);
  expect(letIn).toBeGreaterThanOrEqual(served.size);
  expect(refused).toBeGreaterThan(4 * letIn);
});

/** Written by hand: what would be worst, and what must not be closed by mistake. */
test.each<[caller: ServiceName, callee: DatabaseService, path: string, outcome: string]>([
  ['tasks', 'data', '/granary.data.v1.Data/Store', 'PERMISSION_DENIED'],
  ['finance', 'data', '/granary.data.v1.Data/ListDocuments', 'PERMISSION_DENIED'],
  ['blobs', 'data', '/granary.data.v1.Data/VerifyKey', 'PERMISSION_DENIED'],
  ['blobs', 'data', '/granary.data.v1.Data/RegenerateKey', 'PERMISSION_DENIED'],
  ['gateway', 'data', '/granary.data.v1.Data/CommitUpload', 'PERMISSION_DENIED'],
  ['gateway', 'data', '/granary.events.v1.Outbox/Read', 'PERMISSION_DENIED'],
  ['payments', 'data', '/granary.data.v1.Data/Store', 'PERMISSION_DENIED'],
  ['gateway', 'data', '/granary.data.v1.Data/CloseWrite', 'PERMISSION_DENIED'],
  ['payments', 'blobs', '/granary.blobs.v1.Blobs/DeleteBlob', 'UNAUTHENTICATED'],
  ['finance', 'blobs', '/granary.blobs.v1.Blobs/DeleteBlob', 'PERMISSION_DENIED'],
  ['gateway', 'blobs', '/granary.events.v1.Outbox/ReadAggregate', 'PERMISSION_DENIED'],
  ['data', 'finance', '/granary.finance.v1.Finance/UpdatePayoutSettings', 'UNAUTHENTICATED'],
  ['finance', 'payments', '/granary.payments.v1.Payments/VerifyPayment', 'PERMISSION_DENIED'],
  ['finance', 'payments', '/granary.health.v1.Health/Check', 'PERMISSION_DENIED'],
  ['finance', 'payments', '/granary.events.v1.Outbox/Read', 'let in'],
  ['blobs', 'data', '/granary.data.v1.Data/CommitUpload', 'let in'],
  ['tasks', 'data', '/granary.data.v1.Data/GetJob', 'let in'],
  ['payments', 'data', '/granary.data.v1.Data/CloseWrite', 'let in'],
  ['finance', 'blobs', '/granary.events.v1.Outbox/ReadAggregate', 'let in'],
  ['gateway', 'payments', '/granary.events.v1.Outbox/Read', 'PERMISSION_DENIED'],
  ['gateway', 'tasks', '/granary.health.v1.Health/Check', 'let in'],
])('%s asks %s for %s: %s', async (caller, callee, path, outcome) => {
  const client = new Client(services[callee].address!, credentials.createInsecure());
  const token = signToken(keyOf(caller, callee), { caller, audience: callee, app: '', method: path });
  const consumer = path.includes('.Outbox/Read') ? caller : '';
  expect(await ask(client, path, token, consumer)).toBe(outcome);
  client.close();
});

test('exactly the services with a permitted method are trusted callers', () => {
  for (const service of databaseServices) {
    const callers = new Set([...callersByPath(services[service].implementations).values()].flatMap((all) => [...all]));
    expect([service, [...callers].sort()]).toEqual([service, [...callersOf[service]].sort()]);
  }
});

test('an upload permit is valid on every replica of blobs, and without one nothing is transferred', async () => {
  const gateway = openTrust('gateway', environments.gateway, log).towards('blobs');
  const upload = (permit: Partial<UploadPermit> = {}) => ({
    ...({ op: 'upload', appId: 'nobody', appNumber: '7', collection: 'posters', blobId: 'b' } as const),
    ticketId: newTicket('c', 7n),
    caller: 'key',
    method: 'POST',
    path: '/x',
    idempotencyKey: null,
    maxBytes: 100,
    isPaid: true,
    isHeld: false,
    expiresAtMs: Date.now() + 30_000,
    ...permit,
  });
  const post = async (address: string, permit: string | undefined) => {
    const headers = { 'content-type': 'image/png', ...(permit !== undefined && { [permitHeader]: permit }) };
    const response = await fetch(`http://${address}/blob`, { method: 'POST', body: 'x', headers });
    return `${response.status} ${response.headers.get('x-granary-error')}`;
  };
  const permit = gateway.permit(upload());
  // What was granted is asked of data, which knows no such app.
  for (const copy of [blobs, otherBlobs])
    expect(await post(copy.httpAddress, permit)).toBe('404 NOT_FOUND APP_NOT_FOUND');
  const tasks = openTrust('tasks', environments.tasks, log).towards('blobs').permit(upload());
  for (const none of [undefined, '', 'x.y', tasks, permit.replace('.', 'x.'), gateway.token('/blob', '')]) {
    expect(await post(blobs.httpAddress, none)).toBe('401 UNAUTHENTICATED CALL_REFUSED');
  }
});

/** Settings of each service with a certificate of its own, and the authority that signed them. */
async function tlsSettings() {
  const folder = await mkdtemp(join(directory, 'tls-'));
  const authority = createAuthority();
  const file = async (name: string, content: string) => {
    await writeFile(join(folder, name), content);
    return join(folder, name);
  };
  const settingsOf = async (service: ServiceName) => {
    const { cert, key } = authority.issue();
    return {
      TLS_CA_FILE: await file('ca.pem', authority.cert),
      TLS_CERT_FILE: await file(`${service}.pem`, cert),
      TLS_KEY_FILE: await file(`${service}.key`, key),
      TLS_VERIFY_CLIENTS: 'true',
    };
  };
  const settings = await Promise.all(serviceNames.map(async (name) => [name, await settingsOf(name)] as const));
  return {
    authority,
    settings: Object.fromEntries(settings) as unknown as Record<ServiceName, Record<string, string>>,
  };
}

test('with certificates everywhere all calls and transfers work', async () => {
  const { settings } = await tlsSettings();
  const granary = await startGranary('wire', { settings });
  try {
    const app = await newApp(granary);
    await app.store('films', [{ title: 'Metropolis' }]);
    expect((await app.list('films')).body.records).toHaveLength(1);
    const bytes = Buffer.alloc(300_000, 'x');
    const stored = await app.call('POST', `/api/apps/${app.appId}/blobs/posters`, bytes, {
      'content-type': 'image/png',
    });
    expect(stored.status).toBe(202);
    const { blob_id: id } = stored.body as { blob_id: string };
    const read = await fetch(`${granary.url}/api/apps/${app.appId}/blobs/posters/${id}`, {
      headers: { 'x-app-key': app.key },
    });
    expect(Buffer.from(await read.arrayBuffer()).equals(bytes)).toBe(true);
  } finally {
    await granary.stop();
  }
});

test('with TLS_VERIFY_CLIENTS blob transfers need a client certificate too, also of a renewed authority', async () => {
  const { authority, settings } = await tlsSettings();
  const running = await startBlobs(
    readConfig(blobsConfig, {
      DATABASE_URL: (await testDatabase()).url,
      DATA_ADDRESS: services.data.address,
      OBJECTS_DIR: directory,
      ...environments.blobs,
      ...settings.blobs,
      HTTP_LISTEN: '127.0.0.1:0',
    }),
    { log, listen: false },
  );
  const ask = (options: object) =>
    new Promise<string>((resolve) => {
      const request = requestOverTls(
        `https://${running.httpAddress}/blob`,
        { agent: false, ...options },
        (response) => {
          resolve(String(response.statusCode));
          response.resume();
        },
      );
      request.on('error', () => resolve('cut off')).end();
    });
  try {
    const ca = authority.cert;
    expect(await ask({ ca, ...authority.issue() })).toBe('401');
    expect(await ask({ ca })).toBe('cut off');
    expect(await ask({ ca, ...createAuthority().issue() })).toBe('cut off');
    expect(await ask({ ...authority.issue() })).toBe('cut off');
    const plain = fetch(`http://${running.httpAddress}/blob`).then(() => 'answered');
    expect(await plain.catch(() => 'cut off')).toBe('cut off');

    const renewed = createAuthority();
    const own = renewed.issue();
    await writeFile(settings.blobs['TLS_CA_FILE']!, renewed.cert);
    await writeFile(settings.blobs['TLS_CERT_FILE']!, own.cert);
    await writeFile(settings.blobs['TLS_KEY_FILE']!, own.key);
    await eventually(async () => (await ask({ ca: renewed.cert, ...renewed.issue() })) === '401', 30_000);
    expect(await ask({ ca: [ca, renewed.cert], ...authority.issue() })).toBe('cut off');
  } finally {
    await running.stop();
  }
});
