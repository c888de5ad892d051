import { setTimeout as delay } from 'node:timers/promises';
import { createCollection } from './app-setup';
import { categoryCount, categoryName } from './documents';
import { feedPaths } from './feed-paths';
import type { FollowerCalls } from './followers';
import type { Load, LoadRequest } from './load';
import { look, settle, usageOf } from './measure';
import { startProcess, type Child } from './processes';
import { quantiles } from './quantiles';
import { recordOf } from './records';
import { median, mediansByProcess, processorTimes, table, total } from './report';
import { startSide, type Side } from './sides';
import type { Lengths, Tools } from './tools';

const app = 'broadcast';
/** An app without feeds. */
const quietApp = 'quiet';
/** Commits at a steady rate, each for the feeds of one of 50 pairs of categories. */
const steady = { feeds: 1_000, channels: pairsOfCategories(), perSecond: 100, connections: 16 };
/**
 * Commits one by one, each for all feeds, which have the same category. The time between two is longer than that of a
 * window with the pause behind it.
 */
const crowd = { feeds: 10_000, channels: [[categoryName(0)]], commits: 10, everyMs: 1_500 };
const warmUp = { seconds: 10, commits: 3 };
const wanted = { p99: 3, cpu: 1.5 };
/** Room for all feeds, and for a few connections besides. */
const gateway = { FEED_STREAMS: '11000', FEED_STREAMS_PER_APP: '11000', CONNECTIONS: '12000' };

const sideKeys = ['ours', 'bare'] as const;
type SideKey = (typeof sideKeys)[number];

/** Feeds, and the channels that they follow in turn: the documents of some categories. */
interface Audience {
  feeds: number;
  channels: string[][];
}

/** A server with its followers. */
interface Server {
  side: Side;
  /** The request that writes one document. */
  write: LoadRequest;
  /** A request that writes the same where no feed hears of it. */
  controlWrite: LoadRequest;
  /** The path of each feed. */
  paths: (audience: Audience) => Promise<string[]> | string[];
  followers: Child<FollowerCalls>;
}

/** The time from the answer to a commit until the last of its feeds was told; below 0 if that was earlier. */
interface Delay {
  p50Ms: number;
  p99Ms: number;
}

interface Cost {
  /** Processor time of a delivery by process, in µs. */
  cpuUs: Record<string, number>;
  /** The median from the answer to a commit until the last feed was told. */
  lastMs: number;
  /** Processor time of a commit that no feed hears of, with all else that is done in that time, in ms. */
  controlMs: number;
}

/** A commit, and what follows until the next one. */
interface Commit {
  /** Processor time by process. */
  cpuUs: Record<string, number>;
  /** The time from its answer until the last feed was told. */
  delayMs: number;
}

/** A commit for all feeds, and one before it that no feed hears of. */
interface CommitPair {
  control: Commit;
  broadcast: Commit;
}

/** Medians of the rounds. */
interface BroadcastResult {
  delays: Record<SideKey, Delay> & { ratio: number };
  cost: Record<SideKey, Cost> & { ratio: number };
}

const counted = (count: number) => count.toLocaleString('en');

export const broadcastTitle = 'broadcast: commits told to feeds, beside a bare server that writes to all of a channel';

/** Starts Granary in one process, and the bare server, and measures both alternately. */
export async function measureBroadcast(tools: Tools, { rounds, seconds }: Lengths): Promise<BroadcastResult> {
  const servers = { ours: await startOurs(tools), bare: await startBare(tools) };
  const steadyRounds = await alternate(servers, steady, rounds, {
    warmUp: (server) => delayOf(tools, server, warmUp.seconds),
    measure: (server) => delayOf(tools, server, seconds),
  });
  const crowdRounds = await alternate(servers, crowd, rounds, {
    warmUp: (server) => costOf(tools, server, warmUp.commits),
    measure: (server) => costOf(tools, server, crowd.commits),
  });
  return {
    delays: {
      ...recordOf(sideKeys, (side) => ({
        p50Ms: median(steadyRounds[side].map(({ p50Ms }) => p50Ms)),
        p99Ms: median(steadyRounds[side].map(({ p99Ms }) => p99Ms)),
      })),
      ratio: ratioOf(steadyRounds, ({ p99Ms }) => p99Ms),
    },
    cost: {
      ...recordOf(sideKeys, (side) => ({
        cpuUs: mediansByProcess(crowdRounds[side].map(({ cpuUs }) => cpuUs)),
        lastMs: median(crowdRounds[side].map(({ lastMs }) => lastMs)),
        controlMs: median(crowdRounds[side].map(({ controlMs }) => controlMs)),
      })),
      ratio: ratioOf(crowdRounds, ({ cpuUs }) => total(cpuUs)),
    },
  };
}

/** The median over the rounds of the ratio of a value of ours to that of the bare server. */
const ratioOf = <One>({ ours, bare }: Record<SideKey, One[]>, valueOf: (one: One) => number): number =>
  median(ours.map((one, round) => valueOf(one) / valueOf(bare[round]!)));

async function startOurs({ directory, onStart, postgres }: Tools): Promise<Server> {
  const side = await startSide('embedded', { as: 'fanout', postgres, directory, onStart, settings: { gateway } });
  const opened = await side.openApp(app);
  const quiet = await side.openApp(quietApp);
  await createCollection(side, app, opened, 'documents');
  await createCollection(side, quietApp, quiet, 'documents');
  return {
    side,
    write: opened.requests.append,
    controlWrite: quiet.requests.append,
    paths: ({ feeds, channels }) => {
      const filters = channels.map((categories) => ({ category: { in: categories } }));
      return feedPaths(side, app, opened, filters, feeds);
    },
    followers: startFollowers(onStart),
  };
}

async function startBare({ directory, onStart, postgres }: Tools): Promise<Server> {
  const side = await startSide('bare', { as: 'broadcast', postgres, directory, onStart });
  return {
    side,
    write: side.requests.insert,
    controlWrite: side.requests.insert,
    paths: ({ feeds, channels }) => {
      const queries = channels.map((categories) => categories.map((name) => `category=${name}`).join('&'));
      return Array.from({ length: feeds }, (_, number) => `/writes/feed?${queries[number % queries.length]!}`);
    },
    followers: startFollowers(onStart),
  };
}

function pairsOfCategories(): string[][] {
  const half = categoryCount / 2;
  return Array.from({ length: half }, (_, number) => [categoryName(number), categoryName(number + half)]);
}

function startFollowers(onStart: Tools['onStart']): Child<FollowerCalls> {
  const followers = startProcess<FollowerCalls>('followers.js');
  onStart(followers);
  return followers;
}

/** Opens the feeds of both servers, and measures the servers alternately. Returns the rounds of each. */
async function alternate<One>(
  servers: Record<SideKey, Server>,
  audience: Audience,
  rounds: number,
  steps: Record<'warmUp' | 'measure', (server: Server) => Promise<One>>,
): Promise<Record<SideKey, One[]>> {
  const results = recordOf(sideKeys, (): One[] => []);
  for (const { followers, side, paths } of Object.values(servers)) {
    await followers.call('follow', { port: side.port, paths: await paths(audience), isTimed: true });
  }
  for (const server of Object.values(servers)) await steps.warmUp(server);
  for (let round = 0; round < rounds; round += 1) {
    for (const key of round % 2 === 0 ? sideKeys : sideKeys.toReversed()) {
      results[key].push(await steps.measure(servers[key]));
    }
  }
  for (const { followers } of Object.values(servers)) await followers.call('leave');
  return results;
}

async function delayOf(tools: Tools, server: Server, seconds: number): Promise<Delay> {
  const { feeds, channels, perSecond, connections } = steady;
  await settle([server.side], tools.postgresPid);
  const pace = { connections, seconds, perSecond, requestsMax: Number.MAX_SAFE_INTEGER };
  const delaysMs = await delaysOf(tools, server, pace, feeds / channels.length);
  const [p50Ms = NaN, p99Ms = NaN] = quantiles(delaysMs, [0.5, 0.99]);
  return { p50Ms, p99Ms };
}

/** Commits for all feeds, each after one that no feed hears of: what both cost is not the cost of deliveries. */
async function costOf(tools: Tools, server: Server, commits: number): Promise<Cost> {
  const { feeds } = crowd;
  const pairs: CommitPair[] = [];
  await settle([server.side], tools.postgresPid);
  for (let commit = 0; commit < commits; commit += 1) {
    const control = await commitOnce(tools, { ...server, write: server.controlWrite }, { category: 1, feeds: 0 });
    const broadcast = await commitOnce(tools, server, { category: 0, feeds });
    pairs.push({ control, broadcast });
  }
  const mean = (valueOf: (pair: CommitPair) => number) => pairs.reduce((sum, pair) => sum + valueOf(pair), 0) / commits;
  return {
    cpuUs: recordOf(
      Object.keys(pairs[0]!.broadcast.cpuUs),
      (name) => mean(({ broadcast, control }) => broadcast.cpuUs[name]! - control.cpuUs[name]!) / feeds,
    ),
    lastMs: median(pairs.map(({ broadcast }) => broadcast.delayMs)),
    controlMs: mean(({ control }) => total(control.cpuUs)) / 1_000,
  };
}

/** Writes a document of a category, for so many feeds, and waits until the next one is due. */
async function commitOnce(
  tools: Tools,
  server: Server,
  { category, feeds }: { category: number; feeds: number },
): Promise<Commit> {
  const { side } = server;
  const before = look(side, tools.postgresPid);
  const beganMs = performance.now();
  side.nextNumber = Math.ceil(side.nextNumber / categoryCount) * categoryCount + category;
  const [delayMs = NaN] = await delaysOf(tools, server, { connections: 1, seconds: 1, requestsMax: 1 }, feeds);
  await delay(Math.max(0, beganMs + crowd.everyMs - performance.now()));
  return { cpuUs: usageOf(before, look(side, tools.postgresPid), 1).cpuUs, delayMs };
}

/** Writes documents. Returns the time from the answer to each until the last of its feeds was told, in ms. */
async function delaysOf(
  { load }: Tools,
  { side, write, followers }: Server,
  pace: Pick<Load, 'connections' | 'seconds' | 'perSecond' | 'requestsMax'>,
  feedsOfEach: number,
): Promise<number[]> {
  const told = await followers.call('told');
  const firstNumber = side.nextNumber;
  const result = await load.call('run', { ...write, ...pace, port: side.port, firstNumber, timesAnswers: true });
  if (result.refused !== undefined) throw new Error(`A write was refused: ${result.refused}`);
  side.nextNumber += result.requests;
  await followers.call('untilTold', told + result.requests * feedsOfEach);
  const arrivals = new Map(await followers.call('arrivals'));
  return result.answeredMs!.map((answeredMs, place) => {
    const { feeds, lastMs } = arrivals.get(firstNumber + place) ?? { feeds: 0, lastMs: NaN };
    if (feeds !== feedsOfEach) throw new Error(`${feeds} feeds were told a document, in place of ${feedsOfEach}.`);
    return lastMs - answeredMs;
  });
}

/** Formats the tables of results. */
export function broadcastLines({ delays, cost }: BroadcastResult): string[] {
  const ms = (value: number) => value.toFixed(1);
  const ratio = (value: number) => `× ${value.toFixed(2)}`;
  const titles = { ours: 'Granary', bare: 'bare' };
  const delayRows = sideKeys.map((side) => [titles[side], ms(delays[side].p50Ms), ms(delays[side].p99Ms)]);
  const costRows = sideKeys.map((side) => {
    const { cpuUs, lastMs, controlMs } = cost[side];
    return [titles[side], total(cpuUs).toFixed(1), ms(lastMs), ms(controlMs), processorTimes(cpuUs)];
  });
  const each = counted(steady.feeds / steady.channels.length);
  return [
    '',
    broadcastTitle,
    `${steady.perSecond} commits a second, each for ${each} of ${counted(steady.feeds)} feeds: ms from the answer until the last was told`,
    ...table([['', 'p50', 'p99'], ...delayRows], 2),
    `p99: ${ratio(delays.ratio)} (wanted: ${ratio(wanted.p99)} or less)`,
    `one commit to ${counted(crowd.feeds)} feeds: processor time of a delivery, ms until the last was told, and processor time in ms for none`,
    ...table([['', 'CPU µs', 'last ms', 'none ms', 'CPU µs by process'], ...costRows], 3),
    `processor time: ${ratio(cost.ratio)} (wanted: ${ratio(wanted.cpu)} or less)`,
  ];
}
