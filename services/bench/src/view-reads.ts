import { setTimeout as delay } from 'node:timers/promises';
import { openBus, type EventBus } from './events';
import { fetchJson } from './fetch-json';
import { loadDocuments, settle } from './measure';
import { median, table } from './report';
import type { App, GranarySide } from './sides';
import type { Lengths, Tools } from './tools';

const readyStepsMax = 60_000;
const readyStepMs = 10;
const documents = 100_000;
/** The rate is moderate, so that latency shows what holds events back and not a queue. */
const eventsPerSecond = 200;
/** The rate is below what one connection can write, so that latency shows the neighbour and not a queue of our own. */
const singlesPerSecond = 100;
const bulkConnections = 4;
const bulkBodies = 500;
const appName = 'viewreads';

/** A view, as the API takes it. */
interface ViewDefinition {
  name: string;
  query: object;
  mode?: 'live' | 'lazy';
  changes?: boolean;
  sources?: string[];
}

/** Two measurements in milliseconds, of which the first is at most `wanted` times the second. */
interface Pair {
  ours: () => Promise<number>;
  other: () => Promise<number>;
  wanted: number;
}

/** Medians of milliseconds, and of their ratio in a round. */
interface PairResult {
  ours: number;
  other: number;
  ratio: number;
  wanted: number;
}

/** The results by title. */
export type ReadsResult = Record<string, PairResult>;

type NumberedApp = App & { nextNumber: number };

/** The statement that computes the same as the view, written by hand. */
const byHand = (documentsTable: string) => `
  select j ->> 'category' as category, count(*) as rows, sum((j ->> 'score')::numeric) as score,
    avg((j ->> 'views')::numeric) as mean
  from (select body::jsonb as j from ${documentsTable} where not deleted offset 0) d group by 1`;

/** Creates a view over the documents of an app, or over the collections in `sources`, and waits until it is built. */
export async function createView(
  side: GranarySide,
  app: string,
  { headers }: App,
  { name, query, mode = 'live', changes = false, sources = ['documents'] }: ViewDefinition,
): Promise<void> {
  const body = { name, query, source_collections: sources, refresh_mode: mode, changes };
  await fetchJson(`${side.url}/apps/${app}/views`, { body, headers, statuses: [202] });
  const url = `${side.url}/apps/${app}/views/${name}`;
  await until(async () => (await fetchJson<{ status: string }>(url, { headers })).status === 'ready');
}

async function until(holds: () => Promise<boolean>): Promise<void> {
  for (let left = readyStepsMax; left > 0; left--) {
    if (await holds()) return;
    await delay(readyStepMs);
  }
  throw new Error('The view was not built.');
}

/**
 * Measures, over 100,000 documents, reading a live view beside computing it by hand, a full refresh of a lazy view
 * beside Postgres's own of the same rows, and single writes alone and beside a bulk load of the same app, which has a
 * live view.
 */
export async function measureReads(
  tools: Tools,
  side: GranarySide,
  query: object,
  options: Lengths,
): Promise<ReadsResult> {
  const app: NumberedApp = { ...(await side.openApp(appName)), nextNumber: documents };
  await app.prepare(false);
  await loadDocuments(tools.load, { name: side.name, port: side.port, requests: app.requests }, documents);
  await createView(side, appName, app, { name: 'live', query });
  await createView(side, appName, app, { name: 'lazy', query, mode: 'lazy' });
  await tools.postgres.call('tidy');
  const database = `${side.prefix}_data`;
  const sql = async (text: string) => (await tools.postgres.call('execute', { database, text })).ms;
  const { rows } = await tools.postgres.call('execute', {
    database,
    text: `select format('a_%s.c_%s', a.number, c.number) as name from collection c
           join application a on a.number = c.app_number where a.app_id = '${appName}' and c.name = 'documents'`,
  });
  const statement = byHand(String(rows[0]!['name']));
  await sql(`create materialized view bench_view as ${statement}`);
  const bus = await openBus(tools, 'refresh');
  const pairs: Record<string, Pair> = {
    'reading a view / computing it': {
      ours: () => readMs(tools, side, options),
      other: () => sql(statement),
      wanted: 1,
    },
    'refresh / refresh materialized view': {
      ours: () => refreshMs(side, app),
      other: () => sql('refresh materialized view bench_view'),
      wanted: 1.5,
    },
    'p99 of single writes beside a bulk load of the same app / alone': {
      ours: () => besideMs(tools, side, app, options),
      other: () => singlesMs(tools, side, app, options),
      wanted: 3,
    },
    'p99 of events during refreshes / without': {
      ours: () => eventsBesideRefreshMs(side, app, bus, options),
      other: () => eventsMs(bus, options),
      wanted: 2,
    },
  };
  const results: ReadsResult = {};
  for (const [title, pair] of Object.entries(pairs)) results[title] = await measurePair(tools, side, pair, options);
  return results;
}

async function measurePair(
  tools: Tools,
  side: GranarySide,
  { ours, other, wanted: wantedRatio }: Pair,
  { rounds }: Lengths,
): Promise<PairResult> {
  const results: Array<Record<'ours' | 'other', number>> = [];
  for (let round = 0; round < rounds; round++) {
    const result = { ours: 0, other: 0 };
    for (const name of round % 2 === 0 ? (['other', 'ours'] as const) : (['ours', 'other'] as const)) {
      await settle([side], tools.postgresPid);
      result[name] = await { ours, other }[name]();
    }
    results.push(result);
  }
  return {
    ours: median(results.map((one) => one.ours)),
    other: median(results.map((one) => one.other)),
    ratio: median(results.map((one) => one.ours / one.other)),
    wanted: wantedRatio,
  };
}

async function readMs({ load }: Tools, { port }: GranarySide, { seconds }: Lengths): Promise<number> {
  const request = { method: 'GET', path: `/api/views/${appName}/live/data`, headers: {}, statuses: [200] };
  const run = { ...request, port, connections: 1, seconds, firstNumber: 0, requestsMax: Number.MAX_SAFE_INTEGER };
  return (await load.call('run', run)).p50Ms;
}

async function refreshMs({ url }: GranarySide, { headers }: App): Promise<number> {
  const beganMs = performance.now();
  const path = `${url}/apps/${appName}/views/lazy/refresh`;
  const { ticket_id: ticket } = await fetchJson<{ ticket_id: string }>(path, { body: {}, headers, statuses: [202] });
  const task = `${url}/api/tasks/${ticket}`;
  await until(async () => (await fetchJson<{ status: string }>(task, { headers })).status === 'Completed');
  return performance.now() - beganMs;
}

/** The p99 of single writes at a fixed rate. */
async function singlesMs(
  { load }: Tools,
  { port }: GranarySide,
  app: NumberedApp,
  { seconds }: Lengths,
): Promise<number> {
  const requestsMax = singlesPerSecond * seconds;
  const firstNumber = app.nextNumber;
  app.nextNumber += requestsMax;
  const run = { ...app.requests.append, port, connections: 32, seconds, perSecond: singlesPerSecond };
  const result = await load.call('run', { ...run, requestsMax, firstNumber });
  if (result.refused !== undefined) throw new Error(`A write was refused: ${result.refused}`);
  return result.p99Ms;
}

async function besideMs(tools: Tools, side: GranarySide, app: NumberedApp, options: Lengths): Promise<number> {
  const firstNumber = app.nextNumber;
  app.nextNumber += bulkBodies * 1_000;
  const bulk = { ...app.requests.load, port: side.port, connections: bulkConnections, seconds: options.seconds };
  const [p99Ms] = await Promise.all([
    singlesMs(tools, side, app, options),
    tools.neighbour.call('run', { ...bulk, requestsMax: bulkBodies, firstNumber }),
  ]);
  return p99Ms;
}

/**
 * The p99 of the time from the commit of an event to the commit of its effect in another process, which uses the
 * Postgres server of the views.
 */
async function eventsMs({ publisher }: EventBus, { seconds }: Lengths): Promise<number> {
  const delaysMs = await publisher.call('publishAt', { perSecond: eventsPerSecond, seconds });
  return delaysMs[Math.floor((delaysMs.length - 1) * 0.99)]!;
}

async function eventsBesideRefreshMs(
  side: GranarySide,
  app: NumberedApp,
  bus: EventBus,
  options: Lengths,
): Promise<number> {
  let isMeasured = false;
  const refreshes = async () => {
    while (!isMeasured) await refreshMs(side, app);
  };
  const events = eventsMs(bus, options).finally(() => (isMeasured = true));
  const [p99Ms] = await Promise.all([events, refreshes()]);
  return p99Ms;
}

/** Formats the table of these results. */
export function readsLines(results: ReadsResult): string[] {
  const rows = Object.entries(results).map(([title, { ours, other, ratio, wanted: wantedRatio }]) => [
    title,
    `${ours.toFixed(2)} ms`,
    `${other.toFixed(2)} ms`,
    `× ${ratio.toFixed(2)}`,
    `× ${wantedRatio}`,
  ]);
  return ['', ...table([['of 100,000 documents', 'the first', 'the second', 'ratio', 'wanted'], ...rows])];
}
