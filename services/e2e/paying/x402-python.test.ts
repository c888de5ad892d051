import { randomBytes } from 'node:crypto';
import { Anvil, describeWithAnvil } from '@granary/testing/anvil';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { describeWith } from '@granary/testing/stack';
import { decoded } from '@granary/testing/x402-client';
import { runPython } from '../clients/generated';
import { evmSettings, fundGas } from '../support/evm-payments';
import { newApp, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';

interface PythonAnswer {
  status: number;
  text: string;
  headers: Record<string, string>;
}

const price = 250_000;
const describeWithBoth = describeWithAnvil(describeWith(describe, 'python'));

describeWithBoth('the official client in Python, with its default timeouts and a block every 2 s', () => {
  let anvil: Anvil;
  let granary: Granary;
  let payTo: string;
  let url: string;
  beforeAll(async () => {
    const { privateKeyToAccount } = await import('viem/accounts');
    anvil = await Anvil.start();
    payTo = privateKeyToAccount(`0x${randomBytes(32).toString('hex')}`).address;
    granary = await startGranary('wire', { settings: { payments: await evmSettings(anvil, payTo) } });
    await fundGas(granary, anvil);
    const app = await newApp(granary);
    await app.store('films', [{ id: 'one', title: 'Alien' }]);
    const priced = { read_price_config: { pricing_model: 'per_access', price_per_access_utia: price } };
    expect((await app.call('PUT', `/api/apps/${app.appId}/collections/films`, priced)).status).toBe(200);
    url = `${granary.url}/api/apps/${app.appId}/collections/films/data`;
    // Without gas the network was closed.
    await eventually(async () => (await fetch(url)).headers.has('payment-required'));
    await anvil.call('evm_setAutomine', false);
    await anvil.call('evm_setIntervalMining', 2);
  }, limitMs(60_000));
  afterAll(async () => {
    await granary?.stop();
    await anvil?.stop();
  });

  test.each([
    ['httpx', 2, 'payment-response'],
    ['httpx', 1, 'x-payment-response'],
    ['requests', 2, 'payment-response'],
  ])('%s gets what it pays for in one call, in version %i, and pays once', async (library, version, header) => {
    const { privateKeyToAccount } = await import('viem/accounts');
    const key = `0x${randomBytes(32).toString('hex')}` as const;
    const { address } = privateKeyToAccount(key);
    // One payment's worth, and half of another one.
    await anvil.mint(address, BigInt(price * 1.5));
    const before = await anvil.tokenBalance(payTo);
    const answer = await runPython<PythonAnswer>('pay.py', url, key, library, `${version}`);
    expect([answer.status, answer.text]).toEqual([200, expect.stringContaining('Alien')]);
    expect(decoded(answer.headers[header] ?? null)).toMatchObject({ success: true });
    expect(await anvil.tokenBalance(payTo)).toBe(before + BigInt(price));
  });
});
