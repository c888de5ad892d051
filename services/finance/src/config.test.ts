import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ConfigError, readConfig } from '@granary/shared/config';
import { financeConfig, nodeUrlsOf } from './config';

const directory = mkdtempSync(join(tmpdir(), 'granary-urls-'));
afterAll(() => rmSync(directory, { recursive: true }));
const CHAIN_RPC_URLS_FILE = join(directory, 'urls');
const chain = { DATABASE_URL: 'postgres://localhost/x', KEY_FILE: 'seed', CHAIN: 'cosmos', CHAIN_ID: 'mocha-5' };

test('the nodes of the chain may be given in a file', () => {
  writeFileSync(CHAIN_RPC_URLS_FILE, 'https://a.example/key, http://b.example:26657\n');
  const config = readConfig(financeConfig, { ...chain, CHAIN_RPC_URLS_FILE });
  expect(nodeUrlsOf(config)).toEqual(['https://a.example/key', 'http://b.example:26657']);
  expect(() => nodeUrlsOf({ ...config, CHAIN_RPC_URLS: 'https://a.example' })).toThrow(ConfigError);
});

test('a file with something else is an error that names the setting', () => {
  writeFileSync(CHAIN_RPC_URLS_FILE, 'a.example:26657');
  expect(() => nodeUrlsOf({ CHAIN_RPC_URLS_FILE })).toThrow(/CHAIN_RPC_URLS_FILE: http/);
});
