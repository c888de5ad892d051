import { setTimeout as delay } from 'node:timers/promises';
import { fetchJson } from './fetch-json.mjs';
import { loadDocuments, settle } from './measure.mjs';
import { postgresTimeUs, postgresUsage } from './processes.mjs';
import { median, table } from './report.mjs';
import { bulkSize } from './runs.mjs';
import { startSide } from './sides.mjs';

const warmUpSeconds = 2;
const readyStepsMax = 6_000;
const readyStepMs = 100;

const sums = { rows: { $count: '*' }, score: { $sum: 'score' }, mean: { $avg: 'views' } };
const byCategory = { group_by: ['category'], aggregate: sums };
const extremes = { group_by: ['category'], aggregate: { least: { $min: 'score' }, most: { $max: 'score' } } };
const byOwner = { group_by: ['owner'], aggregate: sums };

/**
 * Writes to a collection with live views, beside the same writes without: `documents` are there before, `connections` write,
 * `wanted` is the most that the ratio of the median latency may be.
 */
const measured = {
  'one document, 10,000 stored': { documents: 10_000, views: [byCategory], run: 'insert', connections: 1, wanted: 1.5 },
  'one document, 100,000 stored': {
    documents: 100_000,
    views: [byCategory],
    run: 'insert',
    connections: 1,
    wanted: 1.5,
  },
  'one document, 1,000,000 stored': {
    documents: 1_000_000,
    views: [byCategory],
    run: 'insert',
    connections: 1,
    wanted: 1.5,
  },
  '32 writers, sums': { documents: 10_000, views: [byCategory], run: 'insert', connections: 32, wanted: 1.5 },
  '32 writers, extremes': { documents: 10_000, views: [extremes], run: 'insert', connections: 32, wanted: 2 },
  'one document, ten views': {
    documents: 10_000,
    views: Array(10).fill(byCategory),
    run: 'insert',
    connections: 1,
    wanted: 4,
  },
  [`${bulkSize} documents, 100 groups`]: {
    documents: 10_000,
    views: [byCategory],
    run: 'bulk',
    connections: 1,
    wanted: 1.15,
  },
  [`${bulkSize} documents, 18,000 groups`]: {
    documents: 10_000,
    views: [byOwner],
    run: 'bulk',
    connections: 1,
    wanted: 1.6,
  },
};

export const viewsTitle = 'views: writes with live views, beside the same without';

/**
 * Starts Granary in one process and measures each case in two apps that differ in the views only, alternately. Returns
 * `{title: {without, with, ratio, cpuUs}}`: p50 in milliseconds, medians of the rounds, the median of its ratio in a round,
 * and the processor time of Postgres that the views take of a document.
 */
export async function measureViews(tools, options) {
  const { directory, started, postgres } = tools;
  const side = await startSide('embedded', { as: 'views', postgres, directory, started });
  const results = {};
  for (const [at, [title, definition]] of Object.entries(measured).entries()) {
    const apps = {};
    for (const name of ['without', 'with']) apps[name] = await openApp(tools, side, `views${at}${name}`, definition);
    for (const [index, query] of definition.views.entries()) {
      await createView(side, `views${at}with`, apps.with, `v${index}`, query);
    }
    await postgres.call('tidy');
    results[title] = await measureCase(tools, side, apps, definition, options);
  }
  return results;
}

async function openApp({ load }, side, name, { documents }) {
  const app = await side.openApp(name);
  await app.prepare(false);
  await loadDocuments(load, { name: side.name, port: side.port, requests: app.requests }, documents);
  return { ...app, nextNumber: documents };
}

async function createView(side, appName, { headers }, name, query) {
  const body = { name, query, source_collections: ['documents'], refresh_mode: 'live' };
  await fetchJson(`${side.url}/apps/${appName}/views`, { body, headers, statuses: [202] });
  for (let left = readyStepsMax; left > 0; left--) {
    const { status } = await fetchJson(`${side.url}/apps/${appName}/views/${name}`, { headers });
    if (status === 'ready') return;
    await delay(readyStepMs);
  }
  throw new Error(`The view ${name} was not built.`);
}

async function measureCase(tools, side, apps, { run, connections }, { rounds, seconds }) {
  const documents = run === 'bulk' ? bulkSize : 1;
  const write = async (app, length) => {
    const before = postgresUsage(tools.postgresPid, side.prefix);
    const result = await tools.load.call('run', {
      ...{ ...app.requests[run], port: side.port, connections, seconds: length, firstNumber: app.nextNumber },
      requestsMax: Number.MAX_SAFE_INTEGER,
    });
    if (result.refused !== undefined) throw new Error(`A write was refused: ${result.refused}`);
    const us = postgresTimeUs(before, postgresUsage(tools.postgresPid, side.prefix));
    app.nextNumber += (result.requests + connections) * documents;
    return { ms: result.p50Ms, cpuUs: us / (result.requests * documents) };
  };
  for (const app of Object.values(apps)) await write(app, warmUpSeconds);
  const found = [];
  for (let round = 0; round < rounds; round++) {
    const result = {};
    // The order alternates.
    for (const name of round % 2 === 0 ? ['without', 'with'] : ['with', 'without']) {
      await settle([side], tools.postgresPid);
      result[name] = await write(apps[name], seconds);
    }
    found.push(result);
  }
  return {
    without: median(found.map((one) => one.without.ms)),
    with: median(found.map((one) => one.with.ms)),
    ratio: median(found.map((one) => one.with.ms / one.without.ms)),
    cpuUs: median(found.map((one) => one.with.cpuUs - one.without.cpuUs)),
  };
}

/** Formats the table of results. */
export function viewsLines(results) {
  const rows = Object.entries(results).map(([title, { without, with: viewed, ratio, cpuUs }]) => [
    ...[title, `${without.toFixed(2)} ms`, `${viewed.toFixed(2)} ms`, `× ${ratio.toFixed(2)}`],
    ...[`× ${measured[title].wanted}`, `${cpuUs.toFixed(0)} µs`],
  ]);
  return ['', viewsTitle, ...table([['p50', 'without', 'with', 'ratio', 'wanted', 'Postgres a document'], ...rows])];
}
