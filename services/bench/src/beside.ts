import { availableParallelism } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import type { Load, LoadCalls, LoadResult } from './load';
import { loadDocuments, settle } from './measure';
import type { Child } from './processes';
import { median, table } from './report';
import { bulkSize, type GranaryRequestName } from './runs';
import type { GranarySide, LoadedApp } from './sides';
import type { Lengths, Tools } from './tools';

/** The neighbour runs this long before and after the measurement of the app. */
const leadSeconds = 2;
const neighbourDocuments = 20_000;
/** Refusals (429 and 503) are correct answers to a flood. */
const floodStatuses = [200, 429, 503];
/** The refusals of reads that are too expensive (400) or have waited too long (504) are correct answers, too. */
const strangerStatuses = [...floodStatuses, 400, 504];

export type BesideCaseName = 'fairness' | 'strangers' | 'mixed';

/** The requests that are named by `run`, to one app. */
interface Requests extends Partial<Pick<Load, 'perSecond' | 'greeting' | 'statuses' | 'requestsMax'>> {
  call: 'run';
  run: GranaryRequestName;
  connections: number;
  /** The number of documents in each request. */
  documents?: number;
}

/** A slow reader. */
interface SlowReader {
  call: 'trickle';
  run: GranaryRequestName;
  connections: number;
  bytesPerSecond: number;
}

/** Work on the processors, without requests. */
interface Spin {
  call: 'spin';
  threads: number;
}

type NeighbourLoad = Requests | SlowReader | Spin;

interface Neighbour {
  title: string;
  loads: NeighbourLoad[];
  /** Whether it loads the app that is measured, instead of another one. */
  isSameApp?: boolean;
}

/**
 * An app sends requests of `run` at a fixed rate below saturation, over more connections than it needs, all opened
 * before, so that its latency shows the effect of the neighbour.
 */
interface BesideCase {
  title: string;
  run: GranaryRequestName;
  perSecond: number;
  connections: number;
  /** The number of documents in each request. */
  documents: number;
  /** The bound of p99 beside the neighbour, as a multiple of p99 alone. */
  wanted: number;
  neighbours: Neighbour[];
}

/** Medians of the rounds, and the first answer that was a refusal. */
interface Together {
  p50Ms: number;
  p99Ms: number;
  refused?: string;
}

interface TogetherBeside extends Together {
  /** The ratio of p99 to the p99 without a neighbour in the same round. */
  ratio: number;
  neighbourPerSecond: number;
  neighbourRefused?: string;
}

interface BesideResult {
  alone: Together;
  /** The results by the title of the neighbour. */
  beside: Record<string, TogetherBeside>;
}

interface BesideRound extends LoadResult {
  ratio: number;
  neighbourPerSecond: number;
  neighbourRefused: string | undefined;
}

// Each answer has 3.6 MB, more than the buffers of the system hold.
const trickle: SlowReader = { call: 'trickle', run: 'largestPage', connections: 8, bytesPerSecond: 16_384 };
const flood: Requests[] = [
  { call: 'run', run: 'point', connections: 32, statuses: floodStatuses },
  { call: 'run', run: 'largePage', connections: 32, statuses: floodStatuses },
];
const dearest: Requests[] = [
  { call: 'run', run: 'scan', connections: 32, statuses: strangerStatuses },
  { call: 'run', run: 'count', connections: 16, statuses: strangerStatuses },
  { call: 'run', run: 'deepPage', connections: 16, statuses: strangerStatuses },
];
// This load shows the effect of saturated processors without requests to Granary, so it has no target.
const spin: Spin = { call: 'spin', threads: availableParallelism() };
const bulk: Requests = { call: 'run', run: 'bulk', connections: 4, requestsMax: 500, documents: bulkSize };

/** Cases measured alone and beside a neighbour. */
export const besideCases: Record<BesideCaseName, BesideCase> = {
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

export const isBesideCase = (name: string): name is BesideCaseName => name in besideCases;

/** Measures a case on one side, alone and beside each neighbour. */
export async function measureBeside(
  tools: Tools,
  side: GranarySide,
  name: BesideCaseName,
  { rounds, seconds }: Lengths,
): Promise<BesideResult> {
  const { neighbours, run, perSecond, connections, documents } = besideCases[name];
  const load: Requests = { call: 'run', greeting: '/livez', run, perSecond, connections, documents };
  const other = await neighbourOf(tools, side);
  const alone: LoadResult[] = [];
  const beside: Record<string, BesideRound[]> = Object.fromEntries(neighbours.map(({ title }) => [title, []]));
  await sendRequests(tools.load, side, load, leadSeconds);
  for (let round = 0; round < rounds; round++) {
    await settle([side], tools.postgresPid);
    const byItself = await sendRequests(tools.load, side, load, seconds);
    alone.push(byItself);
    for (const { title, loads, isSameApp } of neighbours) {
      await settle([side], tools.postgresPid);
      const result = await runBeside(tools, side, load, isSameApp ? side : other, loads, seconds);
      beside[title]!.push({ ...result, ratio: result.p99Ms / byItself.p99Ms });
    }
  }
  const results = Object.entries(beside).map(([title, each]) => [title, togetherBeside(each)] as const);
  return { alone: together(alone), beside: Object.fromEntries(results) };
}

async function runBeside(
  tools: Tools,
  side: GranarySide,
  load: Requests,
  neighbour: LoadedApp,
  loads: readonly NeighbourLoad[],
  seconds: number,
): Promise<Omit<BesideRound, 'ratio'>> {
  const neighbourSeconds = seconds + 2 * leadSeconds;
  const [result, ...results] = await Promise.all([
    delay(leadSeconds * 1000).then(() => sendRequests(tools.load, side, load, seconds)),
    ...loads.map((each) => runLoad(tools.neighbour, neighbour, each, neighbourSeconds)),
  ]);
  return {
    ...result,
    neighbourPerSecond: results.reduce((sum, { requests }) => sum + requests, 0) / neighbourSeconds,
    neighbourRefused: results.find(({ refused }) => refused !== undefined)?.refused,
  };
}

/** Another app of the side, with its own documents; created once. */
async function neighbourOf({ load }: Tools, side: GranarySide): Promise<LoadedApp> {
  if (side.neighbour) return side.neighbour;
  const { requests, prepare } = await side.openApp('neighbour');
  await prepare(false);
  await loadDocuments(load, { name: side.name, port: side.port, requests }, neighbourDocuments);
  side.neighbour = { port: side.port, requests, nextNumber: side.nextNumber, accepted: { writes: 0 } };
  return side.neighbour;
}

/** Runs a load for an app. Returns the number of its requests, which is 0 for a slow reader and for other work. */
async function runLoad(
  tool: Child<LoadCalls>,
  app: LoadedApp,
  load: NeighbourLoad,
  seconds: number,
): Promise<{ requests: number; refused?: string | undefined }> {
  if (load.call === 'run') return sendRequests(tool, app, load, seconds);
  if (load.call === 'spin') await tool.call('spin', { threads: load.threads, seconds });
  else {
    const { run, connections, bytesPerSecond } = load;
    const { port, nextNumber: firstNumber } = app;
    await tool.call('trickle', { ...app.requests[run], port, seconds, firstNumber, connections, bytesPerSecond });
  }
  return { requests: 0 };
}

/** Sends requests to an app, and counts the stored documents. */
async function sendRequests(
  tool: Child<LoadCalls>,
  app: LoadedApp,
  { call, run, documents = 0, ...load }: Requests,
  seconds: number,
): Promise<LoadResult> {
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
  app.accepted.writes += result.requests * documents;
  return result;
}

function together(results: readonly LoadResult[]): Together {
  const refused = results.find((result) => result.refused !== undefined)?.refused;
  return {
    p50Ms: median(results.map(({ p50Ms }) => p50Ms)),
    p99Ms: median(results.map(({ p99Ms }) => p99Ms)),
    ...(refused && { refused }),
  };
}

function togetherBeside(results: readonly BesideRound[]): TogetherBeside {
  const neighbourRefused = results.find((result) => result.neighbourRefused !== undefined)?.neighbourRefused;
  return {
    ...together(results),
    ratio: median(results.map(({ ratio }) => ratio)),
    neighbourPerSecond: median(results.map(({ neighbourPerSecond }) => neighbourPerSecond)),
    ...(neighbourRefused && { neighbourRefused }),
  };
}

/** Formats the table of a case: `results` by side. */
export function besideLines(name: BesideCaseName, results: Record<string, BesideResult>): string[] {
  const { title, perSecond, wanted: wantedRatio } = besideCases[name];
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
  return ['', `${title}, ${perSecond}/s (wanted: p99 at most ${wantedRatio} x alone)`, ...table([header, ...rows])];
}
