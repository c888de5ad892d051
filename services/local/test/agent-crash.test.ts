import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '@granary/shared/testing/eventually';
import { newApp, operatorKey, send, type TestApp } from './granary';
import { endAllProcesses, OwnGranary } from './own-process';

const isLong = process.env['TEST_LONG'] !== undefined;
const kills = isLong ? 50 : 5;
const readers = 16;
const price = 1_001;
const readsMax = kills * 60 + 40;
const settings = { OPERATOR_KEY: operatorKey, AGENT_RESERVATION_MS: '1000', SIMULATED_BLOCK_MS: '50' };

let dataDir: string;
let granary: OwnGranary;
beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'granary-agents-'));
  granary = await OwnGranary.start(dataDir, settings);
});
afterAll(async () => {
  await granary?.end('SIGTERM');
  await endAllProcesses();
  await rm(dataDir, { recursive: true, force: true });
});

/** Readers that go on until told to stop; whoever was answered with 200 has paid. */
class Reading {
  paid = 0;
  private isStopped = false;
  private readonly loops: Array<Promise<void>>;

  constructor(key: string) {
    this.loops = Array.from({ length: readers }, async () => {
      while (!this.isStopped) {
        const { status } = await readWith(key).catch(() => ({ status: 0 }));
        if (status === 200) this.paid += 1;
        else await new Promise((resolve) => setTimeout(resolve, 10));
      }
    });
  }

  async more(count: number): Promise<void> {
    const goal = this.paid + count;
    await eventually(async () => this.paid >= goal, 30_000);
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    await Promise.all(this.loops);
  }
}

const readWith = (key: string) =>
  send<{ details?: { reason?: string } }>(granary.url, 'GET', `/api/apps/${granary.app.appId}/collections/films/data`, {
    headers: { 'x-agent-key': key },
  });
const walletOf = async ({ appId, key }: Pick<TestApp, 'appId' | 'key'>) =>
  (
    await send<{ balance: number; total_spent: number; total_earned: number }>(
      granary.url,
      'GET',
      `/api/apps/${appId}/wallet`,
      { key },
    )
  ).body;

test(`kill -9 ${kills} times during ${readers} parallel paid reads: whoever got an answer has paid, and no hold is left`, async () => {
  const { url, app } = granary;
  const asOwner = { key: app.key };
  await send(url, 'POST', '/store', { ...asOwner, body: { root: `${app.appId}::films`, data: [{ id: 'one' }] } });
  const read_price_config = { pricing_model: 'per_access', price_per_access_utia: price };
  const path = `/api/apps/${app.appId}/collections/films`;
  expect((await send(url, 'PUT', path, { ...asOwner, body: { read_price_config } })).status).toBe(200);
  const payer = await newApp(granary);
  const funds = readsMax * price * 2;
  const headers = { 'x-operator-key': operatorKey };
  await send(url, 'POST', `/api/apps/${payer.appId}/faucet`, { body: { amount: funds }, headers });
  await eventually(async () => (await walletOf(payer)).balance === funds);
  const made = await payer.call<{ app_key: string }>('POST', `/api/apps/${payer.appId}/regenerate-key`, {
    ...{ name: 'agent', permissions: ['Pay'], pay_limits: { spend_allowance: readsMax * price } },
  });
  const key = made.body.app_key;

  let answered = 0;
  let leftHeld = 0;
  for (let kill = 0; kill < kills; kill += 1) {
    const reading = new Reading(key);
    await reading.more(20);
    await Promise.all([reading.stop(), granary.end('SIGKILL')]);
    answered += reading.paid;
    granary = await OwnGranary.start(dataDir, settings);
    const { balance, total_spent } = await walletOf(payer);
    leftHeld += funds - balance - total_spent;
  }
  expect(leftHeld).toBeGreaterThan(0);
  // What was held back has expired: all that is not spent is there again.
  await eventually(async () => {
    const { balance, total_spent } = await walletOf(payer);
    return balance + total_spent === funds;
  }, 30_000);
  const paid = (await walletOf(payer)).total_spent / price;
  expect(paid).toBeGreaterThanOrEqual(answered);
  expect(paid).toBeLessThanOrEqual(answered + kills * readers);

  // Neither is anything of the allowance left held.
  let refused: string | undefined;
  for (let left = readsMax - paid; left >= 0 && refused === undefined; left -= 1) {
    const { status, body } = await readWith(key);
    if (status !== 200) refused = body.details?.reason;
  }
  expect(refused).toBe('allowance_spent');
  expect((await walletOf(payer)).total_spent).toBe(readsMax * price);
  expect((await walletOf(app)).total_earned).toBe(readsMax * Math.floor(price * 0.8));
});
