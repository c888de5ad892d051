import { createCollection } from './app-setup';
import { categoryCount, categoryName } from './documents';
import { feedPaths } from './feed-paths';
import type { FollowerCalls } from './followers';
import { look, settle, usageOf } from './measure';
import { startProcess, type Child } from './processes';
import { median, table, total } from './report';
import { startSide, type App, type GranarySide } from './sides';
import type { Lengths, Tools } from './tools';

/** As many feeds as an app may have by tokens, less a few. */
const feedCount = 1_000;
/** So many feeds are open before memory is measured, so that what all of them share is not counted. */
const firstFeeds = 100;
const connections = 32;
const warmUpSeconds = 10;

/** Writers of a collection that is followed, beside the same writers without a feed. */
const cases = {
  'feeds that no write is for': { category: (number: number) => `none${number}`, wanted: 1 / 0.9 },
  'each write for ten feeds': { category: categoryName, wanted: undefined },
};

interface CaseResult {
  /** Processor time of a write in µs: of Granary and Postgres, without the client. */
  without: number;
  with: number;
  /** Median of the rounds. */
  ratio: number;
  wanted?: number | undefined;
  /** Changes that were told for each write. */
  told: number;
}

/** The results of writes by title, and the memory of an idle feed in KiB. */
type FeedsResult = Record<keyof typeof cases, CaseResult> & { idleKib: number };

const wantedKib = 16;

export const feedsTitle = `feeds: processor time of single writes beside ${feedCount.toLocaleString('en')} feeds of their collection, beside none`;

/** Starts Granary in one process, and writes to an app while it is followed and while it is not, alternately. */
export async function measureFeeds(tools: Tools, { rounds, seconds }: Lengths): Promise<FeedsResult> {
  const { directory, onStart, postgres } = tools;
  const side = await startSide('embedded', { as: 'feeds', postgres, directory, onStart });
  const followers = startProcess<FollowerCalls>('followers.js');
  onStart(followers);
  const results: Partial<FeedsResult> = {};
  for (const [index, title] of (Object.keys(cases) as Array<keyof typeof cases>).entries()) {
    const { category, wanted: most } = cases[title];
    const name = `feeds${index}`;
    const app = await side.openApp(name);
    await createCollection(side, name, app, 'documents');
    const filters = Array.from({ length: categoryCount }, (_, number) => ({ category: category(number) }));
    const paths = await feedPaths(side, name, app, filters, feedCount);
    // Before the warm-up, since a process that was made to collect its garbage is slow for a while.
    results.idleKib ??= await idleKib(side, followers, paths);
    await measureWrites(tools, side, app, warmUpSeconds);
    const measured: Array<Record<'without' | 'with', number> & { told: number }> = [];
    for (let round = 0; round < rounds; round += 1) {
      const without = await measureWrites(tools, side, app, seconds);
      await followers.call('follow', { port: side.port, paths });
      const withFeeds = await measureWrites(tools, side, app, seconds, followers);
      await followers.call('leave');
      measured.push({ without: without.cpuUs, with: withFeeds.cpuUs, told: withFeeds.told });
    }
    results[title] = {
      without: median(measured.map((one) => one.without)),
      with: median(measured.map((one) => one.with)),
      ratio: median(measured.map((one) => one.with / one.without)),
      told: median(measured.map(({ told }) => told)),
      wanted: most,
    };
  }
  return results as FeedsResult;
}

/** The memory of Granary that a feed takes while there is nothing to tell, in KiB. */
async function idleKib(side: GranarySide, followers: Child<FollowerCalls>, paths: string[]): Promise<number> {
  const { port } = side;
  await followers.call('follow', { port, paths: paths.slice(0, firstFeeds) });
  const before = await memoryMib(side);
  await followers.call('follow', { port, paths: paths.slice(firstFeeds) });
  const after = await memoryMib(side);
  await followers.call('leave');
  return ((after - before) * 1_024) / (paths.length - firstFeeds);
}

async function measureWrites(
  { load, postgresPid }: Tools,
  side: GranarySide,
  { requests }: App,
  seconds: number,
  followers?: Child<FollowerCalls>,
): Promise<{ cpuUs: number; told: number }> {
  await settle([side], postgresPid);
  const [before, toldBefore] = [look(side, postgresPid), (await followers?.call('told')) ?? 0];
  const result = await load.call('run', {
    ...requests.append,
    port: side.port,
    connections,
    seconds,
    firstNumber: side.nextNumber,
    requestsMax: Number.MAX_SAFE_INTEGER,
  });
  if (result.refused !== undefined) throw new Error(`A write was refused: ${result.refused}`);
  side.nextNumber += result.requests + connections;
  await settle([side], postgresPid);
  const { cpuUs } = usageOf(before, look(side, postgresPid), result.requests);
  const told = ((await followers?.call('told')) ?? 0) - toldBefore;
  return { cpuUs: total(cpuUs), told: told / result.requests };
}

/** Memory of the processes of a side after garbage collection. */
async function memoryMib({ children }: GranarySide): Promise<number> {
  let sum = 0;
  for (const { child } of children) sum += (await child.memory()).resident;
  return sum;
}

/** Formats the table of results. */
export function feedsLines({ idleKib, ...results }: FeedsResult): string[] {
  const rows = Object.entries(results).map(([title, { without, with: withFeeds, ratio, told, wanted: most }]) => [
    title,
    `${without.toFixed(0)} µs`,
    `${withFeeds.toFixed(0)} µs`,
    `× ${ratio.toFixed(2)}`,
    most === undefined ? '' : `× ${most.toFixed(2)}`,
    told.toFixed(1),
  ]);
  return [
    '',
    feedsTitle,
    ...table([['a write', 'without', 'with', 'ratio', 'wanted', 'told'], ...rows]),
    `An idle feed takes ${idleKib.toFixed(1)} KiB (wanted: ${wantedKib} or less).`,
  ];
}
