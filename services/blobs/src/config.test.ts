import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readConfig } from '@granary/shared/config';
import { blobsConfig } from './config';
import { openObjectStore } from './objects/object-store';

const common = { DATABASE_URL: 'postgres://localhost/x', INTERNAL_SECRET: 'x'.repeat(32) };
const s3 = { OBJECT_STORE: 's3', S3_ENDPOINT: 'http://127.0.0.1:9000', S3_BUCKET: 'blobs' };
const keys = { S3_ACCESS_KEY: 'access', S3_SECRET_KEY: 'very secret' };

test.each([
  ['files', { OBJECTS_DIR: '/objects' }],
  ['S3 with keys', { ...s3, ...keys }],
  ['S3 with keys from files', { ...s3, S3_ACCESS_KEY_FILE: '/a', S3_SECRET_KEY_FILE: '/b' }],
  ['S3 by web identity', { ...s3, AWS_WEB_IDENTITY_TOKEN_FILE: '/token', S3_STS_ENDPOINT: 'http://127.0.0.1:9000' }],
  ['S3 with keys, whatever EKS sets', { ...s3, ...keys, AWS_WEB_IDENTITY_TOKEN_FILE: '/token' }],
  ['presigned', { ...s3, ...keys, BLOBS_PRESIGNED: 'true', S3_PUBLIC_ENDPOINT: 'https://files.example.org/' }],
  ['a prefix', { ...s3, ...keys, S3_PREFIX: 'granary/blobs/' }],
])('%s is a configuration', (_, environment) => {
  expect(() => readConfig(blobsConfig, { ...common, ...environment })).not.toThrow();
});

test.each([
  ['no directory', {}, ['OBJECTS_DIR']],
  ['an unknown store', { OBJECT_STORE: 'tape' }, ['OBJECT_STORE']],
  ['S3 with nothing else', { OBJECT_STORE: 's3' }, ['S3_ENDPOINT', 'S3_BUCKET', 'S3_ACCESS_KEY', 'S3_SECRET_KEY']],
  ['a key twice', { ...s3, ...keys, S3_SECRET_KEY_FILE: '/b' }, ['S3_SECRET_KEY']],
  ['half a key', { ...s3, S3_ACCESS_KEY: 'a', AWS_WEB_IDENTITY_TOKEN_FILE: '/token' }, ['S3_SECRET_KEY']],
  ['an endpoint with a path', { ...s3, ...keys, S3_ENDPOINT: 'http://127.0.0.1:9000/minio' }, ['S3_ENDPOINT']],
  ['an endpoint without a scheme', { ...s3, ...keys, S3_ENDPOINT: '127.0.0.1:9000' }, ['S3_ENDPOINT']],
  ['an impossible bucket', { ...s3, ...keys, S3_BUCKET: 'My_Bucket' }, ['S3_BUCKET']],
  ['a prefix without an end', { ...s3, ...keys, S3_PREFIX: 'granary' }, ['S3_PREFIX']],
  ['presigned for nobody', { ...s3, ...keys, BLOBS_PRESIGNED: 'true' }, ['S3_PUBLIC_ENDPOINT']],
  ['presigned files', { OBJECTS_DIR: '/objects', BLOBS_PRESIGNED: 'true' }, ['BLOBS_PRESIGNED']],
])('%s is refused by name, and no secret is said', (_, environment, names) => {
  const read = () => readConfig(blobsConfig, { ...common, ...environment });
  for (const name of names) expect(read).toThrow(name);
  expect(read).not.toThrow(/very secret/);
});

test('a file of a key that is missing or empty is named', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'granary-keys-'));
  const [access, secret] = [join(directory, 'access'), join(directory, 'secret')];
  const environment = { ...common, ...s3, S3_ACCESS_KEY_FILE: access, S3_SECRET_KEY_FILE: secret };
  const open = () => openObjectStore(readConfig(blobsConfig, environment), 'owner');
  await expect(open()).rejects.toThrow('S3_ACCESS_KEY_FILE');
  await writeFile(access, 'access\n');
  await writeFile(secret, '\n');
  await expect(open()).rejects.toThrow('S3_SECRET_KEY_FILE');
});
