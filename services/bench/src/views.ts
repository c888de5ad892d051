import { loadDocuments, settle } from './measure.mjs';
import { postgresTimeUs, postgresUsage } from './processes.mjs';
import { median, table } from './report.mjs';
import { bulkSize } from './runs.mjs';
import { startSide } from './sides.mjs';
import { createView, measureReads, readsLines } from './view-reads.mjs';

const warmUpSeconds = 2;

const sums = { rows: { $count: '*' }, score: { $sum: 'score' }, mean: { $avg: 'views' } };
const byCategory = { group_by: ['category'], aggregate: sums };
const everything = {
  group_by: ['category'],
  aggregate: { ...sums, least: { $min: 'score' }, most: { $max: 'score' } },
};

const byViews = { group_by: ['views'], aggregate: sums };
const single = { views: [byCategory], run: 'append', connections: 1, wanted: 1.5 };
const filled = { documents: 10_000, run: 'append', connections: 32, wanted: 1.5 };
const bulk = { run: 'load', connections: 1 };
/** Each document has the owner of one of the other collection. */
const joinedDocuments = 18_000;
const byCategoryOfBoth = {
  group_by: ['category'],
  aggregate: { rows: { $count: '*' }, score: { $sum: 'other.score' }, mean: { $avg: 'other.views' } },
  join: { other: { collection: 'writes', on: { owner: '$data.owner' } } },
};
const joining = {
  documents: joinedDocuments,
  views: [byCategoryOfBoth],
  connections: 1,
  wanted: 2,
  sources: ['documents', 'writes'],
};
const largestUsual = 1_000_000;

/** Rows whose ratio must be the same, but for this factor, whatever is stored. */
const flat = { from: 'one document, 10,000 stored', to: 'one document, 1,000,000 stored', wanted: 1.2 };

/**
 * Writes to the collection with live views, beside the same writes without: `documents` are there before, `connections`
 * write, `wanted` is the most that the ratio of the median latency may be, and `wantedUs` the most of Postgres's
 * processor time that the views may take of a document. `sources`: the collections of the views, all with so many
 * documents.
 */
const measured = {
  'one document, 10,000 stored': { ...single, documents: 10_000 },
  'one document, 100,000 stored': { ...single, documents: 100_000 },
  'one document, 1,000,000 stored': { ...single, documents: largestUsual },
  '32 writers, count, sum and average': { ...filled, views: [byCategory], wantedUs: 50 },
  '32 writers, extremes too': { ...filled, views: [everything], wanted: 2, wantedUs: 100 },
  'an update that changes the group': { ...single, documents: 100_000, run: 'recategorize', wanted: 2 },
  [`${bulkSize} documents, 100 groups`]: { ...bulk, documents: 10_000, views: [byCategory], wanted: 1.15 },
  [`${bulkSize} documents, 200,000 groups`]: { ...bulk, documents: 200_000, views: [byViews], wanted: 1.6 },
  'one document of the base of a join': { ...joining, run: 'append' },
  'one document of the other side': { ...joining, run: 'insert' },
  'one document, ten views': { ...single, documents: 10_000, views: Array(10).fill(byCategory), wanted: 4 },
};

/** More than a million only where that is asked for: it takes long to load. */
function casesOf({ documents }) {
  if (documents <= largestUsual) return measured;
  return { ...measured, [`one document, ${documents.toLocaleString('en')} stored`]: { ...single, documents } };
}

export const viewsTitle = 'views: writes with live views, beside the same without';

/**
 * Starts Granary in one process and measures each case in two apps that differ in the views only, alternately. Returns
 * `{title: {without, with, ratio, cpuUs}}`: p50 in milliseconds, medians of the rounds, the median of its ratio in a
 * round, and the processor time of Postgres that the views take of a document.
 */
export async function measureViews(tools, options) {
  const { directory, started, postgres } = tools;
  const side = await startSide('embedded', { as: 'views', postgres, directory, started });
  const results = {};
  for (const [at, [title, definition]] of Object.entries(casesOf(options)).entries()) {
    const apps = {};
    for (const name of ['without', 'with']) apps[name] = await openApp(tools, side, `views${at}${name}`, definition);
    for (const [index, query] of definition.views.entries()) {
      await createView(side, `views${at}with`, apps.with, { name: `v${index}`, query, sources: definition.sources });
    }
    await postgres.call('tidy');
    results[title] = await measureCase(tools, side, apps, definition, options);
  }
  results.reads = await measureReads(tools, side, byCategory, options);
  return results;
}

async function openApp({ load }, side, name, { documents, sources = [] }) {
  const app = await side.openApp(name);
  await app.prepare(false);
  const { requests } = app;
  await loadDocuments(load, { name: side.name, port: side.port, requests }, documents);
  if (sources.includes('writes')) {
    await loadDocuments(load, { name: side.name, port: side.port, requests: { load: requests.bulk } }, documents);
  }
  return { ...app, nextNumber: documents };
}

async function measureCase(tools, side, apps, { run, connections, wanted, wantedUs }, { rounds, seconds }) {
  const documents = run === 'load' ? bulkSize : 1;
  const write = async (app, length) => {
    const before = postgresUsage(tools.postgresPid, side.prefix);
    const result = await tools.load.call('run', {
      ...app.requests[run],
      port: side.port,
      connections,
      seconds: length,
      firstNumber: app.nextNumber,
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
    wanted,
    wantedUs,
  };
}

/** Formats the tables of results. */
export function viewsLines({ reads, ...results }) {
  const rows = Object.entries(results).map(([title, { without, with: viewed, ratio, cpuUs, wanted, wantedUs }]) => [
    title,
    `${without.toFixed(2)} ms`,
    `${viewed.toFixed(2)} ms`,
    `× ${ratio.toFixed(2)}`,
    `× ${wanted}`,
    `${cpuUs.toFixed(0)} µs`,
    wantedUs === undefined ? '' : `${wantedUs} µs`,
  ]);
  const growth = results[flat.to].ratio / results[flat.from].ratio;
  const head = ['p50', 'without', 'with', 'ratio', 'wanted', 'Postgres a document', 'wanted'];
  return [
    '',
    viewsTitle,
    ...table([head, ...rows]),
    `The ratio grows from 10,000 to 1,000,000 documents by × ${growth.toFixed(2)} (wanted: × ${flat.wanted} or less).`,
    ...readsLines(reads),
  ];
}
