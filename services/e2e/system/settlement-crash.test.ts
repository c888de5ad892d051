import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { encoded, newPayer, version1 } from '@granary/testing/x402-client';
import { operatorKey, send } from '../support/granary';
import { endAllProcesses, OwnGranary } from '../support/own-process';
import {
  asked,
  isSimulated,
  newGranter,
  newSigner,
  newWriter,
  PayingClients,
  readFilms,
  type Shop,
} from './paying-clients';

const kills = size({ run: 2, long: 250 });
const seed = seedOf('system/settlement-crash');
const [readers, writers, granters, signers] = [8, 4, 2, 2];
const price = 1_001;
const fee = 1_000n;
/** What each wallet has to begin with. */
const funds = 100_000_000;
jest.setTimeout(sizedLimitMs(limitMs(300_000)));
const settings = {
  OPERATOR_KEY: operatorKey,
  SIMULATED_BLOCK_MS: '50',
  // An answer is lost by a kill, and not because the machine is busy.
  REQUEST_TIMEOUT_MS: String(Math.min(limitMs(10_000), 600_000)),
};

let dataDir: string;
let granary: OwnGranary;
beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'granary-settlement-'));
  granary = await OwnGranary.start(dataDir, settings);
});
afterAll(async () => {
  await granary?.end('SIGTERM');
  await endAllProcesses();
  await rm(dataDir, { recursive: true, force: true });
});

/** A collection that costs something to read, one that costs something to write, and a key that may write there. */
async function openShop(): Promise<Shop> {
  const { url, app } = granary;
  const { key, appId } = app;
  const call = async <T>(method: string, path: string, body: object) => {
    const answer = await send<T>(url, method, path, { key, body });
    expect([answer.status < 300, answer.text]).toEqual([true, answer.text]);
    return answer.body;
  };
  const config = { pricing_model: 'per_access', price_per_access_utia: price };
  const collections = `/api/apps/${appId}/collections`;
  await call('POST', '/store', { root: `${appId}::films`, data: [{ id: 'one' }] });
  await call('PUT', `${collections}/films`, { read_price_config: config });
  await call('POST', collections, { name: 'notes', write_pricing: 'on' });
  const index = { name: 'by_id', collection: 'notes', field_name: 'kind', index_type: 'btree', price_config: config };
  await call('POST', `/api/apps/${appId}/indexes`, index);
  const writer = { name: 'writer', permissions: ['Write'] };
  const made = await call<{ app_key: string }>('POST', `/api/apps/${appId}/regenerate-key`, writer);
  return { granary: () => granary, dataDir, writeKey: made.app_key };
}

/** Reads that were answered with the page; of others the answer was lost. */
let answered = 0;

/** Pays on the simulated network for each read, and sends the payment until its answer is definite. */
async function newReader(shop: Shop): Promise<() => Promise<void>> {
  const payer = await newPayer();
  return async () => {
    const requirement = await asked(() => readFilms(shop), isSimulated);
    const headers = { 'x-payment': encoded(await version1(payer, requirement)) };
    for (;;) {
      const answer = await readFilms(shop, headers);
      const reason = answer?.status === 402 ? answer.body.details?.reason : undefined;
      if (answer?.status === 200) answered += 1;
      if (answer?.status === 200 || reason === 'payment_already_used') return;
      if (reason !== undefined) throw new Error(`the payment was refused: ${reason}`);
      await delay(20);
    }
  };
}

const severalOf = <T>(count: number, make: () => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, make));

test(`kill -9 ${kills} times by the seed ${seed} while clients pay by x402 and by grants: each payment is settled and credited once, and pays once`, async () => {
  const { key, appId } = granary.app;
  const shop = await openShop();
  const [users, payers] = [
    await severalOf(granters, () => newGranter(shop, funds)),
    await severalOf(signers, () => newSigner(shop, funds, fee)),
  ];
  const reading = new PayingClients(await severalOf(readers, () => newReader(shop)));
  const writing = new PayingClients(await severalOf(writers, () => newWriter(shop)));
  const granting = users.map(({ clients }) => clients.map((client) => new PayingClients([client])));
  const signing = payers.map(({ clients }) => new PayingClients(clients));
  const all = [reading, writing, ...granting.flat(), ...signing];
  const random = seededRandom(seed);
  for (let kill = 0; kill < kills; kill += 1) {
    const reads = 10 + Math.floor(random() * 20);
    await Promise.all(all.map((clients) => clients.more(clients === reading ? reads : 1)));
    await granary.end('SIGKILL');
    granary = await OwnGranary.start(dataDir, settings);
  }
  await reading.more(readers);
  await Promise.all(all.map((clients) => clients.stop()));
  expect(answered).toBeLessThanOrEqual(reading.ended);
  expect(answered).toBeGreaterThanOrEqual(reading.ended - kills * readers);

  const payments = all.reduce((sum, { ended }) => sum + ended, 0);
  await eventually(async () => {
    const wallet = await send<{ balance: number }>(granary.url, 'GET', `/api/apps/${appId}/wallet`, { key });
    return wallet.body.balance === payments * Math.floor(price * 0.8);
  });
  // Each wallet has paid once for each answer, and no deduction is left open.
  for (const [at, user] of users.entries()) {
    const cost = granting[at]!.reduce((sum, { ended }) => sum + ended, 0) * price;
    expect([await user.spent(), await user.taken()]).toEqual([cost, cost]);
  }
  for (const [at, payer] of payers.entries()) {
    expect(await payer.spent()).toBe(signing[at]!.ended * (price + Number(fee)));
  }
  // Each document was written, and once.
  const written = writing.ended + granting.reduce((sum, [, writes]) => sum + writes!.ended, 0);
  expect(written).toBeGreaterThan(kills);
  const found = await send<{ total: number }>(granary.url, 'POST', '/list', {
    key,
    body: { root: `${appId}::notes`, limit: 1, include_history: true },
  });
  expect(found.body.total).toBe(written);
});
