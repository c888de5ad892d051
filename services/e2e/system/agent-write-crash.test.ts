import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { newApp, operatorKey, send, type TestApp } from '../support/granary';
import { endAllProcesses, OwnGranary } from '../support/own-process';
import { RepeatedRequests, walletOf } from './repeated-requests';

const kills = size({ run: 2, long: 250 });
const seed = seedOf('system/agent-write-crash');
const writers = 16;
const price = 1_001;
const funds = kills * 1_000 * price;
jest.setTimeout(sizedLimitMs(limitMs(300_000)));
/**
 * What is held for a write ends after twice that: longer than it takes to start again, so that what a kill has left
 * held is seen.
 */
const requestMs = limitMs(5_000);
const settings = {
  OPERATOR_KEY: operatorKey,
  SIMULATED_BLOCK_MS: '50',
  REQUEST_TIMEOUT_MS: String(requestMs),
  AGENT_RESERVATION_MS: '1000',
};

let dataDir: string;
let granary: OwnGranary;
beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'granary-agent-writes-'));
  granary = await OwnGranary.start(dataDir, settings);
});
afterAll(async () => {
  await granary?.end('SIGTERM');
  await endAllProcesses();
  await rm(dataDir, { recursive: true, force: true });
});

/** The keys of a writer and of an agent that pays for it. */
async function newKeys(): Promise<{ payer: TestApp; headers: Record<string, string> }> {
  const { url, app } = granary;
  const call = (path: string, body: object) =>
    send<{ app_key: string }>(url, 'POST', `/api/apps/${app.appId}${path}`, { key: app.key, body });
  await call('/collections', { name: 'notes', write_pricing: 'on' });
  const price_config = { pricing_model: 'per_access', price_per_access_utia: price };
  await call('/indexes', {
    name: 'by_topic',
    collection: 'notes',
    field_name: 'topic',
    index_type: 'btree',
    price_config,
  });
  const writer = await call('/regenerate-key', { name: 'writer', permissions: ['Write'] });
  const payer = await newApp(granary);
  const operator = { 'x-operator-key': operatorKey };
  await payer.call('POST', `/api/apps/${payer.appId}/faucet`, { amount: funds }, operator);
  await eventually(async () => (await walletOf(granary, payer)).balance === funds);
  const agent = await payer.call<{ app_key: string }>('POST', `/api/apps/${payer.appId}/regenerate-key`, {
    name: 'agent',
    permissions: ['Pay'],
    pay_limits: { spend_allowance: funds },
  });
  return { payer, headers: { 'x-app-key': writer.body.app_key, 'x-agent-key': agent.body.app_key } };
}

test(`kill -9 ${kills} times by the seed ${seed} during ${writers} parallel paid writes: what was written is paid, each once, and nothing else`, async () => {
  const { appId, key } = granary.app;
  const { payer, headers } = await newKeys();
  let sent = 0;
  const write = async () => {
    const body = { root: `${appId}::notes`, data: [{ id: `note-${sent++}`, topic: 'rain' }] };
    return (await send(granary.url, 'POST', '/store', { body, headers })).status === 202;
  };
  const random = seededRandom(seed);
  let answered = 0;
  let leftHeld = 0;
  for (let kill = 0; kill < kills; kill += 1) {
    const writing = new RepeatedRequests(writers, write);
    await writing.more(10 + Math.floor(random() * 20));
    await Promise.all([writing.stop(), granary.end('SIGKILL')]);
    answered += writing.done;
    granary = await OwnGranary.start(dataDir, settings);
    const { balance, total_spent } = await walletOf(granary, payer);
    leftHeld += funds - balance - total_spent;
  }
  expect(leftHeld).toBeGreaterThan(0);
  await eventually(async () => {
    const { balance, total_spent } = await walletOf(granary, payer);
    return balance + total_spent === funds;
  });
  const found = await send<{ total: number }>(granary.url, 'POST', '/list', {
    key,
    body: { root: `${appId}::notes`, limit: 1, include_history: true },
  });
  const written = found.body.total;
  expect(written).toBeGreaterThanOrEqual(answered);
  expect([(await walletOf(granary, payer)).total_spent, (await walletOf(granary, granary.app)).total_earned]).toEqual([
    written * price,
    written * Math.floor(price * 0.8),
  ]);
});
