import { setTimeout as delay } from 'node:timers/promises';
import { fetchJson } from './fetch-json';
import type { LoadRequest } from './load';
import { loadDocuments, look, settle, usageOf } from './measure';
import { namesOf, recordOf } from './records';
import { median, mediansByProcess, processorTimes, table, total } from './report';
import type { App, GranarySide } from './sides';
import type { Lengths, Tools } from './tools';

const documentCount = 20_000;
const connections = 32;
const fundsUtia = 1_000_000_000;
const priceUtia = 10;
const fundStepMs = 200;
const fundStepsMax = 300;

type ReadName = 'plain' | 'unpriced' | 'own' | 'unpaid' | 'paid';

/**
 * The figures of one kind of requests in a round. The ratios compare it with `plain`: the rate with that of `plain`,
 * but the processor time of `plain` with its own, so that higher is better in both.
 */
interface Round {
  perSecond: number;
  ratio: number;
  /** The ratio of the processor times of all processes. */
  cpuRatio: number;
  cpuUs: Record<string, number>;
}

/** Point reads, each compared with `plain` in the same round; `wanted` is the least ratio of their rates. */
const reads: Record<ReadName, { title: string; wanted?: number }> = {
  plain: { title: 'point read of an app without prices' },
  unpriced: { title: 'the same of one where another collection has a price', wanted: 0.98 },
  own: { title: 'the same of one with a price, with its own key', wanted: 0.98 },
  unpaid: { title: 'without payment: 402', wanted: 0.8 },
  paid: { title: 'paid by an agent key', wanted: 0.3 },
};

/** Measures reads with a price beside the same reads without one. Returns medians of the rounds. */
export async function measurePrices(
  { load, postgresPid }: Tools,
  side: GranarySide,
  { rounds, seconds }: Lengths,
): Promise<Record<ReadName, Round>> {
  const requests = await requestsOf(load, side);
  const send = async (name: ReadName) => {
    await settle([side], postgresPid);
    const limits = { seconds, connections, firstNumber: 0, requestsMax: Number.MAX_SAFE_INTEGER };
    const before = look(side, postgresPid);
    const result = await load.call('run', { ...requests[name], port: side.port, ...limits });
    if (result.refused !== undefined) throw new Error(`${name} was refused: ${result.refused}`);
    const { cpuUs } = usageOf(before, look(side, postgresPid), result.requests);
    return { perSecond: (result.requests * 1000) / result.elapsedMs, cpuUs };
  };
  const names = namesOf(reads);
  const results = recordOf(names, (): Round[] => []);
  for (let round = -1; round < rounds; round++) {
    // The first result of the round, with which the others are compared.
    let plain: Omit<Round, 'ratio' | 'cpuRatio'> | undefined;
    for (const name of names) {
      const one = await send(name);
      plain ??= one;
      const ratio = one.perSecond / plain.perSecond;
      const cpuRatio = total(plain.cpuUs) / total(one.cpuUs);
      // The first round is the warm-up.
      if (round >= 0) results[name].push({ ...one, ratio, cpuRatio });
    }
  }
  return recordOf(names, (name) => medians(results[name]));
}

const medians = (rounds: readonly Round[]): Round => ({
  perSecond: median(rounds.map(({ perSecond }) => perSecond)),
  ratio: median(rounds.map(({ ratio }) => ratio)),
  cpuRatio: median(rounds.map(({ cpuRatio }) => cpuRatio)),
  cpuUs: mediansByProcess(rounds.map(({ cpuUs }) => cpuUs)),
});

/**
 * The requests of the runs. They go to an app without prices, to one where other reads cost something, and to one with
 * a price, which a fourth app pays.
 */
async function requestsOf(load: Tools['load'], side: GranarySide): Promise<Record<ReadName, LoadRequest>> {
  const open = async (name: string) => {
    const app = await side.openApp(name);
    await app.prepare(false);
    await loadDocuments(load, { name: side.name, port: side.port, requests: app.requests }, documentCount);
    return app;
  };
  const plain = await open('plain');
  const unpriced = await open('unpriced');
  const priced = await open('priced');
  const index = { name: 'owner', collection: 'documents', field_name: 'owner', index_type: 'string' };
  const read_price_config = { pricing_model: 'per_access', price_per_access_utia: priceUtia };
  await fetchJson(`${side.url}/api/apps/priced/indexes`, {
    body: { ...index, read_price_config },
    headers: priced.headers,
    statuses: [200],
  });
  await priceAnother(side, unpriced, read_price_config);
  const agentKey = await fundedKey(side);
  const { point } = priced.requests;
  return {
    plain: plain.requests.point,
    unpriced: unpriced.requests.point,
    own: { ...point, headers: priced.headers },
    unpaid: { ...point, statuses: [402] },
    paid: { ...point, headers: { 'X-Agent-Key': agentKey } },
  };
}

/** Creates another collection of the app that costs something to read. */
async function priceAnother(
  { url }: GranarySide,
  { headers }: Pick<App, 'headers'>,
  read_price_config: object,
): Promise<void> {
  const app = `${url}/api/apps/unpriced`;
  await fetchJson(`${app}/collections`, { body: { name: 'other' }, headers, statuses: [201] });
  const index = { name: 'owner', collection: 'other', field_name: 'owner', index_type: 'string' };
  await fetchJson(`${app}/indexes`, { body: { ...index, read_price_config }, headers, statuses: [200, 201, 202] });
}

/** Creates an app with money; returns an agent key of it that has an allowance. */
async function fundedKey(side: GranarySide): Promise<string> {
  const { headers } = await side.openApp('payer');
  const app = `${side.url}/api/apps/payer`;
  const faucet = { body: { amount: fundsUtia }, headers: side.operatorHeaders, statuses: [202] };
  await fetchJson(`${app}/faucet`, faucet);
  const readBalance = async () => (await fetchJson<{ balance: number }>(`${app}/wallet`, { headers })).balance;
  for (let left = fundStepsMax; (await readBalance()) < fundsUtia; left--) {
    if (left === 0) throw new Error('The faucet did not fund the wallet.');
    await delay(fundStepMs);
  }
  const key = { name: 'agent', permissions: ['Pay'], pay_limits: { spend_allowance: fundsUtia } };
  const answer = await fetchJson<{ app_key: string }>(`${app}/regenerate-key`, { body: key, headers });
  return answer.app_key;
}

/** Formats the table of the case: `results` by side. */
export function pricesLines(results: Record<string, Record<ReadName, Round>>): string[] {
  const rows = Object.entries(results).flatMap(([side, ofSide]) =>
    namesOf(ofSide).map((name) => {
      const { perSecond, ratio, cpuRatio, cpuUs } = ofSide[name];
      const { title, wanted: wantedRatio = '' } = reads[name];
      const figures = [Math.round(perSecond).toLocaleString('en-US'), ratio.toFixed(2), cpuRatio.toFixed(2)];
      return [`${side}, ${title}`, ...figures, String(wantedRatio), processorTimes(cpuUs)];
    }),
  );
  const header = ['', 'requests/s', 'ratio', 'ratio by CPU', 'wanted', 'CPU µs per request'];
  return ['', 'prices: reads that cost something, beside a plain one', ...table([header, ...rows])];
}
