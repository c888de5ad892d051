import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { newApp, operatorKey, send } from '../support/granary';
import { endAllProcesses, OwnGranary } from '../support/own-process';
import { RepeatedRequests, walletOf } from './repeated-requests';

const kills = size({ run: 2, long: 250 });
const seed = seedOf('system/agent-crash');
const readers = 16;
const price = 1_001;
const readsMax = kills * 60 + 40;
/** Longer than it takes to start again, so that what a kill has left held is seen. */
const reservationMs = limitMs(10_000);
const settings = {
  OPERATOR_KEY: operatorKey,
  SIMULATED_BLOCK_MS: '50',
  AGENT_RESERVATION_MS: String(reservationMs),
};

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

const readWith = (key: string) =>
  send<{ details?: { reason?: string } }>(granary.url, 'GET', `/api/apps/${granary.app.appId}/collections/films/data`, {
    headers: { 'x-agent-key': key },
  });
test(`kill -9 ${kills} times by the seed ${seed} during ${readers} parallel paid reads: whoever got an answer has paid, and no hold is left`, async () => {
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
  await eventually(async () => (await walletOf(granary, payer)).balance === funds);
  const made = await payer.call<{ app_key: string }>('POST', `/api/apps/${payer.appId}/regenerate-key`, {
    name: 'agent',
    permissions: ['Pay'],
    pay_limits: { spend_allowance: readsMax * price },
  });
  const key = made.body.app_key;

  const random = seededRandom(seed);
  let answered = 0;
  let leftHeld = 0;
  for (let kill = 0; kill < kills; kill += 1) {
    const reading = new RepeatedRequests(readers, async () => (await readWith(key)).status === 200);
    await reading.more(10 + Math.floor(random() * 20), 30_000);
    await Promise.all([reading.stop(), granary.end('SIGKILL')]);
    answered += reading.done;
    granary = await OwnGranary.start(dataDir, settings);
    const { balance, total_spent } = await walletOf(granary, payer);
    leftHeld += funds - balance - total_spent;
  }
  expect(leftHeld).toBeGreaterThan(0);
  // What was held back has expired: all that is not spent is there again.
  await eventually(async () => {
    const { balance, total_spent } = await walletOf(granary, payer);
    return balance + total_spent === funds;
  });
  const paid = (await walletOf(granary, payer)).total_spent / price;
  expect(paid).toBeGreaterThanOrEqual(answered);
  expect(paid).toBeLessThanOrEqual(answered + kills * readers);

  // Neither is anything of the allowance left held.
  let refused: string | undefined;
  for (let left = readsMax - paid; left >= 0 && refused === undefined;) {
    const { status, body } = await readWith(key);
    if (status === 200) left -= 1;
    // Others were too slow, and are repeated.
    if (status === 402) refused = body.details?.reason;
  }
  expect(refused).toBe('allowance_spent');
  expect((await walletOf(granary, payer)).total_spent).toBe(readsMax * price);
  expect((await walletOf(granary, app)).total_earned).toBe(readsMax * Math.floor(price * 0.8));
});
