import { setTimeout as delay } from 'node:timers/promises';
import { fetchJson } from './fetch-json.mjs';
import { loadDocuments, look, settle, usageOf } from './measure.mjs';
import { median, processorTimes, table } from './report.mjs';

const documentCount = 20_000;
const connections = 32;
const fundsUtia = 1_000_000_000;
const priceUtia = 10;
const fundStepMs = 200;
const fundStepsMax = 300;

/** Point reads, each beside `plain` of the same round, and how much of its rate is wanted. */
const measured = {
  plain: { title: 'point read of an app without prices' },
  unpriced: { title: 'the same of one where another collection has a price', wanted: 0.98 },
  own: { title: 'the same of one with a price, with its own key', wanted: 0.98 },
  unpaid: { title: 'without payment: 402', wanted: 0.8 },
  paid: { title: 'paid by an agent key', wanted: 0.3 },
};

/**
 * Measures reads with a price beside the same without. Returns `{name: {perSecond, ratio, cpuRatio, cpuUs}}`, medians
 * of the rounds; `cpuRatio` is that of the processor time of all processes, the other way round.
 */
export async function measurePrices({ load, postgresPid }, side, { rounds, seconds }) {
  const requests = await requestsOf(load, side);
  const results = Object.fromEntries(Object.keys(measured).map((name) => [name, []]));
  for (let round = -1; round < rounds; round++) {
    const rates = {};
    for (const name of Object.keys(measured)) {
      await settle([side], postgresPid);
      const run = { ...requests[name], port: side.port, seconds, connections, firstNumber: 0 };
      const before = look(side, postgresPid);
      const {
        requests: count,
        refused,
        elapsedMs,
      } = await load.call('run', {
        ...run,
        requestsMax: Number.MAX_SAFE_INTEGER,
      });
      if (refused !== undefined) throw new Error(`${name} was refused: ${refused}`);
      const { cpuUs } = usageOf(before, look(side, postgresPid), count);
      rates[name] = { perSecond: (count * 1000) / elapsedMs, cpu: sum(cpuUs) };
      const ratio = rates[name].perSecond / rates.plain.perSecond;
      const cpuRatio = rates.plain.cpu / rates[name].cpu;
      // The first round is the warm-up.
      if (round >= 0) results[name].push({ perSecond: rates[name].perSecond, ratio, cpuRatio, cpuUs });
    }
  }
  return Object.fromEntries(Object.entries(results).map(([name, each]) => [name, medians(each)]));
}

const sum = (cpuUs) => Object.values(cpuUs).reduce((total, us) => total + us, 0);

const medians = (each) => ({
  perSecond: median(each.map(({ perSecond }) => perSecond)),
  ratio: median(each.map(({ ratio }) => ratio)),
  cpuRatio: median(each.map(({ cpuRatio }) => cpuRatio)),
  cpuUs: Object.fromEntries(
    Object.keys(each[0].cpuUs).map((process) => [process, median(each.map(({ cpuUs }) => cpuUs[process]))]),
  ),
});

/**
 * The requests of the runs: of an app without prices, of one where other reads cost something, and of one with a price,
 * which a fourth app pays.
 */
async function requestsOf(load, side) {
  const apps = {};
  for (const name of ['plain', 'unpriced', 'priced']) {
    apps[name] = await side.openApp(name);
    await apps[name].prepare(false);
    await loadDocuments(load, { name: side.name, port: side.port, requests: apps[name].requests }, documentCount);
  }
  const index = { name: 'owner', collection: 'documents', field_name: 'owner', index_type: 'string' };
  const read_price_config = { pricing_model: 'per_access', price_per_access_utia: priceUtia };
  await fetchJson(`${side.url}/api/apps/priced/indexes`, {
    body: { ...index, read_price_config },
    headers: apps.priced.headers,
    statuses: [200],
  });
  await priceAnother(side, apps.unpriced, read_price_config);
  const agentKey = await fundedKey(side);
  const { point } = apps.priced.requests;
  return {
    plain: apps.plain.requests.point,
    unpriced: apps.unpriced.requests.point,
    own: { ...point, headers: apps.priced.headers },
    unpaid: { ...point, statuses: [402] },
    paid: { ...point, headers: { 'X-Agent-Key': agentKey } },
  };
}

/** Has the app another collection that costs something to read. */
async function priceAnother({ url }, { headers }, read_price_config) {
  const app = `${url}/api/apps/unpriced`;
  await fetchJson(`${app}/collections`, { body: { name: 'other' }, headers, statuses: [201] });
  const index = { name: 'owner', collection: 'other', field_name: 'owner', index_type: 'string' };
  await fetchJson(`${app}/indexes`, { body: { ...index, read_price_config }, headers, statuses: [200, 201, 202] });
}

/** An agent key with an allowance, of an app with money. */
async function fundedKey(side) {
  const { headers } = await side.openApp('payer');
  const app = `${side.url}/api/apps/payer`;
  const faucet = { body: { amount: fundsUtia }, headers: side.operatorHeaders, statuses: [202] };
  await fetchJson(`${app}/faucet`, faucet);
  for (let left = fundStepsMax; (await fetchJson(`${app}/wallet`, { headers })).balance < fundsUtia; left--) {
    if (left === 0) throw new Error('The faucet did not fund the wallet.');
    await delay(fundStepMs);
  }
  const key = { name: 'agent', permissions: ['Pay'], pay_limits: { spend_allowance: fundsUtia } };
  return (await fetchJson(`${app}/regenerate-key`, { body: key, headers, statuses: [200] })).app_key;
}

/** Formats the table of the case: `results` by side. */
export function pricesLines(results) {
  const rows = Object.entries(results).flatMap(([side, ofSide]) =>
    Object.entries(ofSide).map(([name, { perSecond, ratio, cpuRatio, cpuUs }]) => {
      const { title, wanted = '' } = measured[name];
      const figures = [Math.round(perSecond).toLocaleString('en-US'), ratio.toFixed(2), cpuRatio.toFixed(2)];
      return [`${side}, ${title}`, ...figures, String(wanted), processorTimes(cpuUs)];
    }),
  );
  const header = ['', 'requests/s', 'ratio', 'ratio by CPU', 'wanted', 'CPU µs per request'];
  return ['', 'prices: reads that cost something, beside a plain one', ...table([header, ...rows])];
}
