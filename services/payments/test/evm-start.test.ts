import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readConfig } from '@granary/shared/config';
import { makeSeedFile } from '@granary/shared/keys/seed-file';
import { Anvil, anvilNetwork, describeWithAnvil } from '@granary/testing/anvil';
import { serviceDatabase } from '@granary/testing/service-database';
import { paymentsConfig } from '../src/config';
import { maxFeeOn } from '../src/schemes/evm/max-fees';
import { paymentsSchema, startPayments } from '../src/service';
import { log } from './support/evm-payments';

const payTo = '0x00000000000000000000000000000000000000aa';
let keyFile: string;
beforeAll(async () => {
  keyFile = join(await mkdtemp(join(tmpdir(), 'granary-gas-')), 'seed');
  await makeSeedFile(keyFile);
});

const start = async (settings: Record<string, string>) => {
  const { url } = await serviceDatabase(paymentsSchema);
  const common = { DATABASE_URL: url, INTERNAL_SECRET: 'a secret that the services share with each other' };
  const config = readConfig(paymentsConfig, { ...common, X402_KEY_FILE: keyFile, ...settings });
  const nowhere = () => ({ address: '127.0.0.1:1' });
  const service = await startPayments(config, { log, listen: false, ledger: nowhere, data: nowhere });
  await service.stop();
};

test('nodes need a key file, and are written as networks with URLs', () => {
  const read = (settings: Record<string, string>) =>
    readConfig(paymentsConfig, { DATABASE_URL: 'postgres://x@127.0.0.1:1/none', ...settings });
  expect(() => read({ EVM_RPC_URLS: 'eip155:1=https://a.example' })).toThrow('X402_KEY_FILE');
  const wrong = [
    'https://a.example',
    'eip155:0=https://a.example',
    'eip155:1=ftp://a.example',
    'eip155:1=https://',
    'solana:x=https://a',
  ];
  const twice = 'eip155:1=https://a.example,eip155:1=https://a.example';
  for (const text of [...wrong, twice]) {
    expect(() => read({ EVM_RPC_URLS: text, X402_KEY_FILE: keyFile })).toThrow('EVM_RPC_URLS');
  }
  const right =
    'eip155:1=https://user:secret@a.example/v2/key, eip155:1=http://b.example:8545,eip155:8453=https://a.example';
  expect(read({ EVM_RPC_URLS: right, X402_KEY_FILE: keyFile }).EVM_RPC_URLS).toBe(right);
});

test('a ceiling of gas is written in whole gwei, and has a default by network', () => {
  const read = (EVM_MAX_FEE_GWEI: string) =>
    readConfig(paymentsConfig, { DATABASE_URL: 'postgres://x@127.0.0.1:1/none', EVM_MAX_FEE_GWEI });
  for (const wrong of ['0', '-1', '0.5', 'eip155:1', '50,eip155:1=0', '50,60', '50,eip155:1=1,eip155:1=2']) {
    expect(() => read(wrong)).toThrow('EVM_MAX_FEE_GWEI');
  }
  const gweiOn = (network: string, setting?: string) =>
    maxFeeOn(network, setting && read(setting).EVM_MAX_FEE_GWEI) / 10n ** 9n;
  expect([gweiOn('eip155:1'), gweiOn('eip155:137'), gweiOn('eip155:8453')]).toEqual([100n, 2_000n, 20n]);
  const setting = '50,eip155:1=200';
  expect([gweiOn('eip155:1', setting), gweiOn('eip155:137', setting)]).toEqual([200n, 50n]);
  expect([gweiOn('eip155:1', 'eip155:1=7'), gweiOn('eip155:8453', 'eip155:1=7')]).toEqual([7n, 20n]);
});

test('payments on a network without nodes are not taken', async () => {
  await expect(start({ X402_PAY_TO: `eip155:8453=${payTo}` })).rejects.toThrow('nodes of eip155:8453 are missing');
  const urls = 'eip155:1735549294=http://127.0.0.1:1';
  await expect(start({ EVM_RPC_URLS: urls })).rejects.toThrow('is the simulated network');
});

test('a key file that is missing ends the start; a node that does not answer does not', async () => {
  const settings = { X402_PAY_TO: `eip155:8453=${payTo}`, EVM_RPC_URLS: 'eip155:8453=http://127.0.0.1:1' };
  await expect(start({ ...settings, X402_KEY_FILE: `${keyFile}-missing` })).rejects.toThrow('cannot be read');
  await start(settings);
});

describeWithAnvil(describe)('with a node', () => {
  test('a start warns where requests wait for less than a block of the network', async () => {
    const warned = jest.spyOn(log, 'warn');
    const anvil = await Anvil.start();
    try {
      const warnings = async (waitMs: number) => {
        warned.mockClear();
        await start({ EVM_RPC_URLS: `${anvilNetwork}=${anvil.url}`, X402_SETTLE_WAIT_MS: String(waitMs) });
        return warned.mock.calls.map(([facts, text]) => [facts, text]);
      };
      await anvil.call('anvil_mine', '0xb', '0xc');
      expect(await warnings(12_000)).toEqual([]);
      const facts = { network: anvilNetwork, blockMs: 12_000, X402_SETTLE_WAIT_MS: 11_999 };
      expect(await warnings(11_999)).toEqual([[facts, 'requests wait for less than a block for their payments']]);
    } finally {
      await anvil.stop();
      warned.mockRestore();
    }
  });

  test('a node of another network ends the start', async () => {
    const anvil = await Anvil.start();
    try {
      await start({ EVM_RPC_URLS: `${anvilNetwork}=${anvil.url}` });
      const both = `${anvilNetwork}=${anvil.url},eip155:8453=${anvil.url}/`;
      await expect(start({ EVM_RPC_URLS: both })).rejects.toThrow(
        'EVM_RPC_URLS: node 1 of eip155:8453 is of the network eip155:84532',
      );
    } finally {
      await anvil.stop();
    }
  });
});
