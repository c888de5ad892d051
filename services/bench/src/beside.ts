import { availableParallelism } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { loadDocuments, settle } from './measure.mjs';
import { median, table } from './report.mjs';
import { bulkSize } from './runs.mjs';

/** The neighbour runs this long before and after the measurement of the app. */
const leadSeconds = 2;
const neighbourDocuments = 20_000;
/** Status 429: a refusal is a correct answer to a flood. */
const floodStatuses = [200, 429, 503];
/** What is refused as too expensive, and what has waited too long, are correct answers too. */
const strangerStatuses = [...floodStatuses, 400, 504];

// Answers of 3.6 MB, more than the buffers of the system.
const trickle = { call: 'trickle', run: 'largestPage', connections: 8, bytesPerSecond: 16_384 };
const flood = [
  { call: 'run', run: 'point', connections: 32, statuses: floodStatuses },
  { call: 'run', run: 'largePage', connections: 32, statuses: floodStatuses },
];
const dearest = [
  { call: 'run', run: 'scan', connections: 32, statuses: strangerStatuses },
  { call: 'run', run: 'count', connections: 16, statuses: strangerStatuses },
  { call: 'run', run: 'deepPage', connections: 16, statuses: strangerStatuses },
];
// The effect of saturated processors alone, without requests to Granary, so there is no target.
const spin = { call: 'spin', threads: availableParallelism() };
const bulk = { call: 'run', run: 'bulk', connections: 4, requestsMax: 500, documents: bulkSize };

/**
 * Cases measured alone and beside a neighbour: an app sends requests of `run` at a fixed rate below saturation, over
 * more connections than it needs, all opened before, so that its latency shows the effect of the neighbour. `wanted`
 * bounds p99 beside the neighbour, as a multiple of p99 alone. The neighbour is another app, unless the title says the
 * same app.
 */
export const besideCases = {
  fairness: {
    title: 'fairness: point reads of an app beside what another app does',
    run: 'point',
    perSecond: 200,
    connections: 128,
    documents: 0,
    wanted: 2,
    neighbours: [
      { title: 'a slow reader: 8 connections, pages of 10,000 at 16 KiB/s', loads: [trickle] },
      { title: 'a flood: 64 connections, point reads and pages of 1,000', loads: flood },
      { title: 'a process that keeps all processors busy and sends no requests', loads: [spin] },
    ],
  },
  strangers: {
    title: 'strangers: point reads of an app beside the dearest reads of another app without a key',
    run: 'point',
    perSecond: 200,
    connections: 128,
    documents: 0,
    wanted: 3,
    neighbours: [{ title: 'one anonymous client: 64 connections, scans, counts and deep pages', loads: dearest }],
  },
  mixed: {
    title: 'mixed: inserts of one document beside a bulk load',
    run: 'insert',
    perSecond: 100,
    connections: 128,
    documents: 1,
    wanted: 3,
    neighbours: [
      { title: 'bulk load of another app, 4 connections', loads: [bulk] },
      { title: 'bulk load of the same app, 4 connections', loads: [bulk], isSameApp: true },
    ],
  },
};

/**
 * Measures a case on one side. Returns `{alone, beside: {title: …}}`, each with the medians of `{p50Ms, p99Ms}` and the
 * number of `refused` requests; beside a neighbour also the median `ratio` of p99, and the neighbour's requests per
 * second.
 */
export async function measureBeside(tools, side, name, { rounds, seconds }) {
  const { neighbours, ...load } = besideCases[name];
  const own = { call: 'run', greeting: '/livez', ...load };
  const other = await neighbourOf(tools, side);
  const measured = { alone: [], beside: Object.fromEntries(neighbours.map(({ title }) => [title, []])) };
  await runLoad(tools.load, side, own, leadSeconds);
  for (let round = 0; round < rounds; round++) {
    await settle([side], tools.postgresPid);
    const alone = await runLoad(tools.load, side, own, seconds);
    measured.alone.push(alone);
    for (const { title, loads, isSameApp } of neighbours) {
      await settle([side], tools.postgresPid);
      const result = await runBeside(tools, side, own, isSameApp ? side : other, loads, seconds);
      measured.beside[title].push({ ...result, ratio: result.p99Ms / alone.p99Ms });
    }
  }
  const beside = Object.entries(measured.beside).map(([title, results]) => [title, together(results)]);
  return { alone: together(measured.alone), beside: Object.fromEntries(beside) };
}

async function runBeside(tools, side, own, neighbour, loads, seconds) {
  const neighbourSeconds = seconds + 2 * leadSeconds;
  const [result, ...results] = await Promise.all([
    delay(leadSeconds * 1000).then(() => runLoad(tools.load, side, own, seconds)),
    ...loads.map((load) => runLoad(tools.neighbour, neighbour, load, neighbourSeconds)),
  ]);
  return {
    ...result,
    // A slow reader counts bytes, not requests.
    neighbourPerSecond: results.reduce((sum, { requests = 0 }) => sum + requests, 0) / neighbourSeconds,
    neighbourRefused: results.find(({ refused }) => refused !== undefined)?.refused,
  };
}

/** Another app of the side, with its own documents; created once. */
async function neighbourOf({ load }, side) {
  if (side.neighbour) return side.neighbour;
  const { requests, prepare } = await side.openApp('neighbour');
  await prepare(false);
  await loadDocuments(load, { name: side.name, port: side.port, requests }, neighbourDocuments);
  side.neighbour = { port: side.port, requests, nextNumber: side.nextNumber, accepted: { writes: 0 } };
  return side.neighbour;
}

/** Runs a load for an app, and counts the stored documents. */
async function runLoad(tool, app, { call, run, documents = 0, ...load }, seconds) {
  const requestsMax = load.requestsMax ?? (load.perSecond ? load.perSecond * seconds : Number.MAX_SAFE_INTEGER);
  const firstNumber = app.nextNumber;
  if (documents > 0) app.nextNumber += requestsMax * documents;
  const result = await tool.call(call, {
    ...app.requests[run],
    port: app.port,
    seconds,
    firstNumber,
    ...load,
    requestsMax,
  });
  app.accepted.writes += (result.requests ?? 0) * documents;
  return result;
}

function together(results) {
  const medianOf = (field) => median(results.map((result) => result[field]));
  const refused = results.find((result) => result.refused !== undefined)?.refused;
  const own = { p50Ms: medianOf('p50Ms'), p99Ms: medianOf('p99Ms'), ...(refused && { refused }) };
  if (results[0].ratio === undefined) return own;
  const neighbourRefused = results.find((result) => result.neighbourRefused !== undefined)?.neighbourRefused;
  return {
    ...own,
    ratio: medianOf('ratio'),
    neighbourPerSecond: medianOf('neighbourPerSecond'),
    ...(neighbourRefused && { neighbourRefused }),
  };
}

/** Formats the table of a case: `results` by side. */
export function besideLines(name, results) {
  const { title, perSecond, wanted } = besideCases[name];
  const header = ['', 'p50 ms', 'p99 ms', 'x alone', "neighbour's requests/s", 'refused'];
  const rows = Object.entries(results).flatMap(([side, { alone, beside }]) => [
    [`${side}, alone`, alone.p50Ms.toFixed(1), alone.p99Ms.toFixed(1), '', '', alone.refused ?? ''],
    ...Object.entries(beside).map(
      ([neighbour, { p50Ms, p99Ms, ratio, neighbourPerSecond, refused, neighbourRefused }]) => [
        `${side}, beside ${neighbour}`,
        p50Ms.toFixed(1),
        p99Ms.toFixed(1),
        ratio.toFixed(2),
        neighbourPerSecond > 0 ? String(Math.round(neighbourPerSecond)) : '',
        refused ?? (neighbourRefused ? `the neighbour: ${neighbourRefused}` : ''),
      ],
    ),
  ]);
  return ['', `${title}, ${perSecond}/s (wanted: p99 at most ${wanted} x alone)`, ...table([header, ...rows])];
}
