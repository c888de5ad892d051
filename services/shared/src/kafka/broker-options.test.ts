import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readConfig } from '../config';
import { createLogger } from '../logger';
import { kafkaConfig } from './settings';
import { readBrokerOptions } from './broker-options';

const read = (environment: Record<string, string>) =>
  readBrokerOptions(
    readConfig(kafkaConfig, { KAFKA_BROKERS: 'a:9092,b:9092', ...environment }),
    createLogger('test', 'silent'),
  );

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'granary-kafka-place-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

/** A file with that content. */
function file(name: string, content: string): string {
  const path = join(directory, name);
  writeFileSync(path, content);
  return path;
}

test('without credentials and TLS there are only brokers', () => {
  expect(read({})).toEqual({ brokers: ['a:9092', 'b:9092'], sasl: undefined, tls: undefined });
});

test('a password is given as it is or in a file', () => {
  const sasl = { mechanism: 'scram-sha-512', username: 'granary', password: 'secret' };
  expect(read({ KAFKA_SASL_USERNAME: 'granary', KAFKA_SASL_PASSWORD: 'secret' }).sasl).toEqual(sasl);
  const KAFKA_SASL_PASSWORD_FILE = file('password', 'secret\n');
  expect(
    read({ KAFKA_SASL_USERNAME: 'granary', KAFKA_SASL_PASSWORD_FILE, KAFKA_SASL_MECHANISM: 'plain' }).sasl,
  ).toEqual({ ...sasl, mechanism: 'plain' });
});

test('certificates are read from files', () => {
  expect(read({ KAFKA_TLS: 'true' }).tls!.latest).toEqual({});
  const files = { KAFKA_TLS_CERT_FILE: file('cert', 'CERT'), KAFKA_TLS_KEY_FILE: file('key', 'KEY') };
  expect(read({ KAFKA_TLS: 'true', KAFKA_TLS_CA_FILE: file('ca', 'CA'), ...files }).tls!.latest).toEqual({
    ca: Buffer.from('CA'),
    cert: Buffer.from('CERT'),
    key: Buffer.from('KEY'),
  });
});

test.each<[Record<string, string>, string]>([
  [{ KAFKA_SASL_USERNAME: 'granary' }, 'KAFKA_SASL_PASSWORD: is missing'],
  [{ KAFKA_SASL_PASSWORD: 'hidden' }, 'KAFKA_SASL_USERNAME: is missing'],
  [
    { KAFKA_SASL_USERNAME: 'a', KAFKA_SASL_PASSWORD: 'hidden', KAFKA_SASL_PASSWORD_FILE: '/nowhere' },
    'KAFKA_SASL_PASSWORD: either it or KAFKA_SASL_PASSWORD_FILE is expected',
  ],
  [
    { KAFKA_SASL_USERNAME: 'a', KAFKA_SASL_PASSWORD_FILE: '/nowhere' },
    'KAFKA_SASL_PASSWORD_FILE: the file cannot be read (ENOENT)',
  ],
  [{ KAFKA_SASL_MECHANISM: 'gssapi' }, 'KAFKA_SASL_MECHANISM'],
  [{ KAFKA_TLS_CA_FILE: '/nowhere' }, 'KAFKA_TLS: must be true'],
  [{ KAFKA_TLS: 'true', KAFKA_TLS_CERT_FILE: '/nowhere' }, 'KAFKA_TLS_KEY_FILE: is missing'],
])('%j is refused by name, without its values', (environment, message) => {
  const attempt = () => read(environment);
  expect(attempt).toThrow(message);
  expect(attempt).not.toThrow('hidden');
});
