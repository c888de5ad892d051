import { loadDocuments, settle } from './measure';
import { postgresTimeUs, postgresUsage } from './processes';
import { median, table } from './report';
import { bulkSize, type GranaryRequestName } from './runs';
import { startSide, type App, type GranarySide } from './sides';
import type { Lengths, Tools } from './tools';
import { createView, measureReads, readsLines, type ReadsResult } from './view-reads';

const warmUpSeconds = 2;

/**
 * Writes to a collection with live views, beside the same writes without them; or with views whose changes are kept,
 * beside the same views without.
 */
interface ViewsCase {
  /** The number of documents that each collection of `sources` has before. */
  documents: number;
  /** The queries of the views. */
  views: readonly object[];
  /** The name of the writing request. */
  run: GranaryRequestName;
  connections: number;
  /** The collections of the views; only `documents` if it is not given. */
  sources?: string[];
  /** The largest ratio of the median latencies. */
  wanted: number;
  /** Whether both have the views, and one keeps their changes. */
  isOfChanges?: true;
  /** The most processor time of Postgres, in µs, that the views may take for a document. */
  wantedUs?: number;
}

/** Medians of the rounds. */
interface CaseResult {
  /** p50 in milliseconds. */
  without: number;
  with: number;
  ratio: number;
  /** The processor time of Postgres, in µs, that the views take for a document. */
  cpuUs: number;
  wanted: number;
  wantedUs?: number;
}

/** The results of writes by title, and those of reads. */
type ViewsResult = Record<string, CaseResult> & { reads: ReadsResult };

type NumberedApp = App & { nextNumber: number };
type Apps = Record<'without' | 'with', NumberedApp>;

const sums = { rows: { $count: '*' }, score: { $sum: 'score' }, mean: { $avg: 'views' } };
const byCategory = { group_by: ['category'], aggregate: sums };
const everything = {
  group_by: ['category'],
  aggregate: { ...sums, least: { $min: 'score' }, most: { $max: 'score' } },
};

const byViews = { group_by: ['views'], aggregate: sums };
const oneWriter = { views: [byCategory], run: 'append', connections: 1, wanted: 1.5 } as const;
const manyWriters = { documents: 10_000, run: 'append', connections: 32, wanted: 1.5 } as const;
const bulkWriter = { run: 'load', connections: 1 } as const;
/** There are as many documents as owners, so each has the owner of one document of the other collection. */
const joinedDocuments = 18_000;
const byCategoryOfBoth = {
  group_by: ['category'],
  aggregate: { rows: { $count: '*' }, score: { $sum: 'other.score' }, mean: { $avg: 'other.views' } },
  join: { other: { collection: 'writes', on: { owner: '$data.owner' } } },
};
const ofJoin = {
  documents: joinedDocuments,
  views: [byCategoryOfBoth],
  connections: 1,
  wanted: 2,
  sources: ['documents', 'writes'],
};
const all = { select: ['id', 'score'] };
/** The ratio is that to the same views without. */
const ofChanges = { isOfChanges: true, wanted: 1.15 } as const;
const largestUsual = 1_000_000;

/** Two rows whose ratios may differ by this factor at most, however much is stored. */
const flat = { from: 'one document, 10,000 stored', to: 'one document, 1,000,000 stored', wanted: 1.2 };

const usualCases: Record<string, ViewsCase> = {
  'one document, 10,000 stored': { ...oneWriter, documents: 10_000 },
  'one document, 100,000 stored': { ...oneWriter, documents: 100_000 },
  'one document, 1,000,000 stored': { ...oneWriter, documents: largestUsual },
  '32 writers, count, sum and average': { ...manyWriters, views: [byCategory], wantedUs: 50 },
  '32 writers, extremes too': { ...manyWriters, views: [everything], wanted: 2, wantedUs: 100 },
  'an update that changes the group': { ...oneWriter, documents: 100_000, run: 'recategorize', wanted: 2 },
  [`${bulkSize} documents, 100 groups`]: { ...bulkWriter, documents: 10_000, views: [byCategory], wanted: 1.15 },
  [`${bulkSize} documents, 200,000 groups`]: { ...bulkWriter, documents: 200_000, views: [byViews], wanted: 1.6 },
  'one document of the base of a join': { ...ofJoin, run: 'append' },
  'one document of the other side': { ...ofJoin, run: 'insert' },
  'one document, ten views': {
    ...oneWriter,
    documents: 10_000,
    views: Array.from({ length: 10 }, () => byCategory),
    wanted: 4,
  },
  'one document, changes kept': { ...oneWriter, ...ofChanges, documents: 10_000 },
  '32 writers, changes kept': { ...manyWriters, ...ofChanges, views: [byCategory] },
  [`${bulkSize} documents, changes kept`]: { ...bulkWriter, ...ofChanges, documents: 10_000, views: [byCategory] },
  [`${bulkSize} documents, all rows, changes kept`]: { ...bulkWriter, ...ofChanges, documents: 10_000, views: [all] },
};

/** Adds a case of more than a million documents only where the options ask for it: these take long to load. */
function casesOf(documents: number): Record<string, ViewsCase> {
  if (documents <= largestUsual) return usualCases;
  return { ...usualCases, [`one document, ${documents.toLocaleString('en')} stored`]: { ...oneWriter, documents } };
}

export const viewsTitle = 'views: writes with live views, beside the same without';

/**
 * Starts Granary in one process and measures each case in two apps that differ in the views only, alternately; then
 * reads of views.
 */
export async function measureViews(tools: Tools, options: Lengths & { documents: number }): Promise<ViewsResult> {
  const { directory, onStart, postgres } = tools;
  const side = await startSide('embedded', { as: 'views', postgres, directory, onStart });
  const writes: Record<string, CaseResult> = {};
  for (const [index, [title, definition]] of Object.entries(casesOf(options.documents)).entries()) {
    const apps: Apps = {
      without: await openApp(tools, side, `views${index}without`, definition),
      with: await openApp(tools, side, `views${index}with`, definition),
    };
    for (const [number, query] of definition.views.entries()) {
      const view = { name: `v${number}`, query, ...(definition.sources && { sources: definition.sources }) };
      const { isOfChanges = false } = definition;
      await createView(side, `views${index}with`, apps.with, { ...view, changes: isOfChanges });
      if (isOfChanges) await createView(side, `views${index}without`, apps.without, view);
    }
    await postgres.call('tidy');
    writes[title] = await measureCase(tools, side, apps, definition, options);
  }
  return Object.assign(writes, { reads: await measureReads(tools, side, byCategory, options) });
}

async function openApp(
  { load }: Tools,
  side: GranarySide,
  name: string,
  { documents, sources = [] }: ViewsCase,
): Promise<NumberedApp> {
  const app = await side.openApp(name);
  await app.prepare(false);
  const { requests } = app;
  await loadDocuments(load, { name: side.name, port: side.port, requests }, documents);
  if (sources.includes('writes')) {
    await loadDocuments(load, { name: side.name, port: side.port, requests: { load: requests.bulk } }, documents);
  }
  return { ...app, nextNumber: documents };
}

/** p50 in milliseconds, and the processor time of Postgres, in µs, for a document. */
interface Write {
  ms: number;
  cpuUs: number;
}

async function measureCase(
  tools: Tools,
  side: GranarySide,
  apps: Apps,
  { run, connections, wanted: wantedRatio, wantedUs }: ViewsCase,
  { rounds, seconds }: Lengths,
): Promise<CaseResult> {
  const documents = run === 'load' ? bulkSize : 1;
  const write = async (app: NumberedApp, length: number) => {
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
  const results: Array<Record<'without' | 'with', Write>> = [];
  for (let round = 0; round < rounds; round++) {
    const result: Partial<Record<'without' | 'with', Write>> = {};
    // The order alternates.
    for (const name of round % 2 === 0 ? (['without', 'with'] as const) : (['with', 'without'] as const)) {
      await settle([side], tools.postgresPid);
      result[name] = await write(apps[name], seconds);
    }
    results.push({ without: result.without!, with: result.with! });
  }
  return {
    without: median(results.map((one) => one.without.ms)),
    with: median(results.map((one) => one.with.ms)),
    ratio: median(results.map((one) => one.with.ms / one.without.ms)),
    cpuUs: median(results.map((one) => one.with.cpuUs - one.without.cpuUs)),
    wanted: wantedRatio,
    ...(wantedUs !== undefined && { wantedUs }),
  };
}

/** Formats the tables of results. */
export function viewsLines({ reads, ...results }: ViewsResult): string[] {
  const rows = Object.entries(results).map(
    ([title, { without, with: viewed, ratio, cpuUs, wanted: wantedRatio, wantedUs }]) => [
      title,
      `${without.toFixed(2)} ms`,
      `${viewed.toFixed(2)} ms`,
      `× ${ratio.toFixed(2)}`,
      `× ${wantedRatio}`,
      `${cpuUs.toFixed(0)} µs`,
      wantedUs === undefined ? '' : `${wantedUs} µs`,
    ],
  );
  const growth = results[flat.to]!.ratio / results[flat.from]!.ratio;
  const head = ['p50', 'without', 'with', 'ratio', 'wanted', 'Postgres a document', 'wanted'];
  return [
    '',
    viewsTitle,
    ...table([head, ...rows]),
    `The ratio grows from 10,000 to 1,000,000 documents by × ${growth.toFixed(2)} (wanted: × ${flat.wanted} or less).`,
    ...readsLines(reads),
  ];
}
