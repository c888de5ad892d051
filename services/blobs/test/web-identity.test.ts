import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
// eslint-disable-next-line no-restricted-imports -- the stand-in of a token service gives out keys with a session token
import { AssumeRoleProvider } from 'minio/dist/main/AssumeRoleProvider.js';
import { webIdentityKeys } from '../src/stores/s3/web-identity';
import { chunksOf, openTestStore, readAll } from '@granary/testing/s3-bucket';
import { describeWith, minioForTests } from '@granary/testing/stack';

const stops: Array<() => Promise<unknown>> = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const stop of stops.splice(0).reverse()) await stop();
});

interface Answer {
  status: number;
  keys?: { accessKey: string; secretKey: string; sessionToken: string };
  lifetimeMs?: number;
}

/** A security token service that answers as it is asked to, and keeps what it was sent. */
async function tokenService(answer: () => Answer | Promise<Answer>) {
  const requests: Array<Record<string, string>> = [];
  const server = createServer((request, response) => {
    void (async () => {
      let text = '';
      for await (const chunk of request.setEncoding('utf8')) text += chunk as string;
      requests.push(Object.fromEntries(new URLSearchParams(text)));
      const { status, keys, lifetimeMs = 3_600_000 } = await answer();
      const expiration = new Date(Date.now() + lifetimeMs).toISOString();
      response.statusCode = status;
      response.end(
        keys
          ? `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
               <AccessKeyId>${keys.accessKey}</AccessKeyId><SecretAccessKey>${keys.secretKey}</SecretAccessKey>
               <SessionToken>${keys.sessionToken}</SessionToken><Expiration>${expiration}</Expiration>
             </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`
          : '<ErrorResponse><Error><Code>InvalidIdentityToken</Code></Error></ErrorResponse>',
      );
    })();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  stops.push(() => new Promise((resolve) => server.close(resolve)));
  return { requests, endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

async function tokenFile(token: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'granary-web-identity-'));
  stops.push(() => rm(folder, { recursive: true }));
  const file = join(folder, 'token');
  await writeFile(file, `${token}\n`);
  return file;
}

const some = (number: number) => ({ accessKey: `key-${number}`, secretKey: 'secret', sessionToken: 'session' });

test('keys are shared until a third of their time is left, then made from the token that the file has', async () => {
  const nowMs = Date.now();
  const clock = jest.spyOn(Date, 'now').mockImplementation(() => nowMs);
  let made = 0;
  const service = await tokenService(() => ({ status: 200, keys: some(++made) }));
  const file = await tokenFile('first');
  const keys = webIdentityKeys({ tokenFile: file, roleArn: 'arn:role', endpoint: service.endpoint });
  const all = await Promise.all([keys(), keys(), keys()]);
  expect(all).toEqual([some(1), some(1), some(1)]);
  expect(service.requests).toEqual([
    {
      Action: 'AssumeRoleWithWebIdentity',
      Version: '2011-06-15',
      WebIdentityToken: 'first',
      RoleArn: 'arn:role',
      RoleSessionName: 'granary-blobs',
    },
  ]);
  await writeFile(file, 'second');
  clock.mockImplementation(() => nowMs + 2_300_000);
  expect(await keys()).toEqual(some(1));
  clock.mockImplementation(() => nowMs + 2_500_000);
  expect(await keys()).toEqual(some(2));
  expect(service.requests[1]).toMatchObject({ WebIdentityToken: 'second' });
});

test('keys that are still valid stay in use while the token service refuses or is away', async () => {
  const nowMs = Date.now();
  const clock = jest.spyOn(Date, 'now').mockImplementation(() => nowMs);
  let answer: Answer = { status: 200, keys: some(1) };
  const service = await tokenService(() => answer);
  const keys = webIdentityKeys({ tokenFile: await tokenFile('token'), endpoint: service.endpoint });
  expect(await keys()).toEqual(some(1));
  answer = { status: 400 };
  clock.mockImplementation(() => nowMs + 3_000_000);
  expect(await keys()).toEqual(some(1));
  clock.mockImplementation(() => nowMs + 3_700_000);
  await expect(keys()).rejects.toMatchObject({ code: 'AccessDenied' });
  answer = { status: 503 };
  await expect(keys()).rejects.toMatchObject({ name: 'StoreFailure' });
  answer = { status: 200, keys: some(2) };
  expect(await keys()).toEqual(some(2));
});

describeWith(describe, 'minio')('an object store', () => {
  test('is used by web identity, and refuses the service in its own words while the token is refused', async () => {
    const minio = await minioForTests();
    const { accessKey, secretKey } = minio;
    const role = new AssumeRoleProvider({ stsEndpoint: minio.endpoint, accessKey, secretKey, durationSeconds: 3_600 });
    let isRefused = true;
    const service = await tokenService(async () => {
      if (isRefused) return { status: 403 };
      const made = await role.getCredentials();
      const sessionToken = made.getSessionToken()!;
      return { status: 200, keys: { accessKey: made.getAccessKey(), secretKey: made.getSecretKey(), sessionToken } };
    });
    const keys = webIdentityKeys({ tokenFile: await tokenFile('token'), endpoint: service.endpoint });
    await expect(openTestStore(minio, { keys })).rejects.toThrow('it answers AccessDenied');
    isRefused = false;
    const { store } = await openTestStore(minio, { keys });
    const bytes = Buffer.alloc(100_000, 'x');
    const received = await store.receive(chunksOf(bytes));
    await received.keep();
    expect((await readAll(store, received.key)).equals(bytes)).toBe(true);
  });
});
