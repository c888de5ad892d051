import { setTimeout as delay } from 'node:timers/promises';
import { alternately, type Alternation, type Read } from './alternately';
import { fetchJson } from './fetch-json';
import { loadDocuments } from './measure';
import { namesOf, recordOf } from './records';
import { table } from './report';
import { startSide, type GranarySide } from './sides';
import type { Lengths, Tools } from './tools';

const sizes = { '10 k': 10_000, '100 k': 100_000, '1 M': 1_000_000 };
const sizeNames = namesOf(sizes);
const [least, most] = ['10 k', '1 M'] as const;
const pageSize = 20;
/** The number of the page, read by a cursor, that is compared with the first page. */
const farPage = 1_000;

const wantedRatio = 1.3;

/** The number of requests whose blocks are counted. */
const countedRequests = 2_000;
const countedSecondsMax = 60;
/** A connection of Postgres reports its counts with a statement, once a second at most. */
const reportAfterMs = 1_200;
const reportingRequests = 20;

type Size = keyof typeof sizes;

/** Milliseconds of requests, their ratio, and the blocks that Postgres reads for each. */
type Comparison<Name extends string> = Alternation<Name> & { blocks: Record<Name, number> };

interface GrowthResult {
  /** The comparisons by the title of the read. */
  reads: Record<string, Comparison<Size>>;
  cursor: Comparison<'first' | 'far'>;
}

export const growthTitle = 'growth: reads by an index at 10,000 to 1,000,000 documents';
/** Reads that an index serves; each finds a whole page in the smallest collection. */
const reads = {
  'equality, in an order': `category={category}&sort=-score&limit=${pageSize}`,
  'a range in its order': `views.$gte=500000&sort=views&limit=${pageSize}`,
  'the id': 'id={id}',
};

/**
 * Starts Granary in one process, with collections of each size, and measures their reads alternately, one request at a
 * time. Returns medians of milliseconds, and of their ratio in a round; and the blocks that Postgres reads for a
 * request, which depend on no other load of the machine.
 */
export async function measureGrowth(tools: Tools, options: Lengths): Promise<GrowthResult> {
  const { directory, onStart, postgres } = tools;
  const side = await startSide('embedded', { as: 'growth', postgres, directory, onStart });
  for (const size of sizeNames) {
    const app = await side.openApp(appOf(size));
    await app.prepare(true);
    await loadDocuments(tools.load, { name: side.name, port: side.port, requests: app.requests }, sizes[size]);
  }
  await postgres.call('tidy');
  const results: GrowthResult['reads'] = {};
  for (const [title, query] of Object.entries(reads)) {
    const requests = recordOf(sizeNames, (size) => ({
      method: 'GET',
      path: `${dataPath(size)}?${query}&count=none`,
      headers: {},
      ids: sizes[size],
    }));
    results[title] = await compare(tools, side, requests, options, [most, least]);
  }
  const cursor = await farCursor(side, most);
  const page = { method: 'GET', headers: {}, path: `${dataPath(most)}?${cursorQuery}` };
  const pages = { first: page, far: { ...page, path: `${page.path}&cursor=${encodeURIComponent(cursor)}` } };
  return { reads: results, cursor: await compare(tools, side, pages, options, ['far', 'first']) };
}

async function compare<Name extends string>(
  tools: Tools,
  side: GranarySide,
  requests: Record<Name, Read>,
  options: Lengths,
  pair: [NoInfer<Name>, NoInfer<Name>],
): Promise<Comparison<Name>> {
  const counts: Partial<Record<Name, number>> = {};
  for (const name of namesOf(requests)) counts[name] = await blocksOf(tools, side, requests[name]);
  const blocks = recordOf(namesOf(requests), (name) => counts[name]!);
  return { ...(await alternately(tools, side, requests, options, pair)), blocks };
}

/** Blocks that Postgres reads for a request, on average. */
async function blocksOf({ load, postgres }: Tools, side: GranarySide, request: Read): Promise<number> {
  const run = async (requestsMax: number) => {
    const result = await load.call('run', {
      port: side.port,
      statuses: [200],
      connections: 1,
      firstNumber: 0,
      ...request,
      seconds: countedSecondsMax,
      requestsMax,
    });
    if (result.refused !== undefined) throw new Error(`A read was refused: ${result.refused}`);
    return result.requests;
  };
  const reported = async () => {
    await delay(reportAfterMs);
    const requests = await run(reportingRequests);
    return { requests, blocks: await postgres.call('blocksRead', `${side.prefix}_data`) };
  };
  const before = await reported();
  const counted = await run(countedRequests);
  const after = await reported();
  return (after.blocks - before.blocks) / (counted + after.requests);
}

const appOf = (size: Size) => `growth${sizes[size]}`;
const dataPath = (size: Size) => `/api/apps/${appOf(size)}/collections/documents/data`;
const cursorQuery = `sort=views&limit=${pageSize}&count=none`;

/** The cursor behind which the far page begins. */
async function farCursor(side: GranarySide, size: Size): Promise<string> {
  let cursor: string | undefined;
  for (let page = 1; page < farPage; page++) {
    const behind = cursor === undefined ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const url = `${side.url}${dataPath(size)}?${cursorQuery}${behind}`;
    ({ next_cursor: cursor } = await fetchJson<{ next_cursor: string }>(url));
  }
  return cursor!;
}

/** Formats the tables of results. */
export function growthLines({ reads: results, cursor }: GrowthResult): string[] {
  const ms = (value: number) => `${value.toFixed(2)} ms`;
  const times = (ratio: number) => `× ${ratio.toFixed(2)}`;
  const rows = Object.entries(results).flatMap(([title, result]) => [
    [title, ...sizeNames.map((size) => ms(result[size])), times(result.ratio)],
    ['  blocks', ...sizeNames.map((size) => result.blocks[size].toFixed(1)), ''],
  ]);
  return [
    '',
    `${growthTitle} (wanted: × ${wantedRatio} or less)`,
    ...table([['', ...sizeNames, 'ratio'], ...rows]),
    '',
    `cursor: page 1 and page ${farPage} of 1,000,000 documents (wanted: × ${wantedRatio} or less)`,
    ...table([
      ['', 'page 1', `page ${farPage}`, 'ratio'],
      ['by a cursor', ms(cursor.first), ms(cursor.far), times(cursor.ratio)],
      ['  blocks', cursor.blocks.first.toFixed(1), cursor.blocks.far.toFixed(1), ''],
    ]),
  ];
}
