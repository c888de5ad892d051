import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ConfigError } from '@granary/shared/config';
import { evmRpcUrls } from '../schemes/evm/settings';
import { solanaRpcUrls } from '../schemes/solana/settings';

const directory = mkdtempSync(join(tmpdir(), 'granary-urls-'));
afterAll(() => rmSync(directory, { recursive: true }));
const fileWith = (text: string): string => {
  const path = join(directory, 'urls');
  writeFileSync(path, text);
  return path;
};

test('nodes are given by value or in a file, not both, and by default there are none', () => {
  const text = 'eip155:1=https://a.example/key,eip155:1=https://b.example,eip155:10=https://a.example';
  const urls = new Map([
    ['eip155:1', ['https://a.example/key', 'https://b.example']],
    ['eip155:10', ['https://a.example']],
  ]);
  expect(evmRpcUrls.in({ EVM_RPC_URLS: text })).toEqual(urls);
  expect(evmRpcUrls.in({ EVM_RPC_URLS_FILE: fileWith(`${text}\n`) })).toEqual(urls);
  const ofEvm: { EVM_RPC_URLS?: string; SOLANA_RPC_URLS?: string } = { EVM_RPC_URLS: text };
  expect(solanaRpcUrls.in(ofEvm)).toEqual(new Map());
  expect(() => evmRpcUrls.in({ EVM_RPC_URLS: text, EVM_RPC_URLS_FILE: fileWith(text) })).toThrow('EVM_RPC_URLS');
});

test('a file without nodes is an error that names the setting, and not what is in it', () => {
  const read = () => solanaRpcUrls.in({ SOLANA_RPC_URLS_FILE: fileWith('https://a.example/secret') });
  expect(read).toThrow(ConfigError);
  expect(read).toThrow(/SOLANA_RPC_URLS_FILE: (?!.*secret)/);
});
