import { setTimeout as delay } from 'node:timers/promises';
import { alternately } from './alternately.mjs';
import { fetchJson } from './fetch-json.mjs';
import { loadDocuments } from './measure.mjs';
import { table } from './report.mjs';
import { startSide } from './sides.mjs';

const sizes = { '10 k': 10_000, '100 k': 100_000, '1 M': 1_000_000 };
const [least, , most] = Object.keys(sizes);
const pageSize = 20;
/** The page by a cursor that is compared with the first. */
const farPage = 1_000;

const wanted = 1.3;

/** Requests of which the blocks are counted. */
const countedRequests = 2_000;
const countedSecondsMax = 60;
/** A connection of Postgres reports its counts with a statement, once a second at most. */
const reportAfterMs = 1_200;
const reportingRequests = 20;

export const growthTitle = 'growth: reads by an index at 10,000 to 1,000,000 documents';
/** Reads that an index serves; each finds a whole page in the smallest collection. */
const reads = {
  'equality, in an order': `category={category}&sort=-score&limit=${pageSize}`,
  'a range in its order': `views.$gte=500000&sort=views&limit=${pageSize}`,
  'the id': 'id={id}',
};

/**
 * Starts Granary in one process, with collections of each size, and measures their reads alternately, one request at a
 * time. Returns
 * `{reads: {title: {size: ms, …, ratio, blocks: {size: blocks, …}}}, cursor: {first, far, ratio, blocks}}`: medians of
 * milliseconds, and of their ratio in a round; and the blocks that Postgres reads for a request, which depend on no
 * other load of the machine.
 */
export async function measureGrowth(tools, options) {
  const { directory, started, postgres } = tools;
  const side = await startSide('embedded', { as: 'growth', postgres, directory, started });
  const apps = {};
  for (const [size, count] of Object.entries(sizes)) {
    const name = `growth${count}`;
    const app = await side.openApp(name);
    await app.prepare(true);
    await loadDocuments(tools.load, { name: side.name, port: side.port, requests: app.requests }, count);
    apps[size] = { ...app, name, count };
  }
  await postgres.call('tidy');
  const measured = { reads: {} };
  for (const [title, query] of Object.entries(reads)) {
    const loads = Object.entries(apps).map(([size, { name, count }]) => [
      size,
      { method: 'GET', path: `${dataPath(name)}?${query}&count=none`, headers: {}, ids: count },
    ]);
    measured.reads[title] = await measureBoth(tools, side, Object.fromEntries(loads), options, [most, least]);
  }
  const cursor = await farCursor(side, apps[most].name);
  const page = { method: 'GET', headers: {}, path: `${dataPath(apps[most].name)}?${cursorQuery}` };
  const pages = { first: page, far: { ...page, path: `${page.path}&cursor=${encodeURIComponent(cursor)}` } };
  measured.cursor = await measureBoth(tools, side, pages, options, ['far', 'first']);
  return measured;
}

async function measureBoth(tools, side, requests, options, compared) {
  const blocks = {};
  for (const [name, request] of Object.entries(requests)) blocks[name] = await blocksOf(tools, side, request);
  return { ...(await alternately(tools, side, requests, options, compared)), blocks };
}

/** Blocks that Postgres reads for a request, on average. */
async function blocksOf({ load, postgres }, side, request) {
  const run = async (requestsMax) => {
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

const dataPath = (app) => `/api/apps/${app}/collections/documents/data`;
const cursorQuery = `sort=views&limit=${pageSize}&count=none`;

/** The cursor behind which the far page begins. */
async function farCursor(side, app) {
  let cursor;
  for (let page = 1; page < farPage; page++) {
    const behind = cursor === undefined ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    ({ next_cursor: cursor } = await fetchJson(`${side.url}${dataPath(app)}?${cursorQuery}${behind}`));
  }
  return cursor;
}

/** Formats the tables of results. */
export function growthLines(measured) {
  const ms = (value) => `${value.toFixed(2)} ms`;
  const times = (ratio) => `× ${ratio.toFixed(2)}`;
  const names = Object.keys(sizes);
  const rows = Object.entries(measured.reads).flatMap(([title, result]) => [
    [title, ...names.map((size) => ms(result[size])), times(result.ratio)],
    ['  blocks', ...names.map((size) => result.blocks[size].toFixed(1)), ''],
  ]);
  const { cursor } = measured;
  return [
    '',
    `${growthTitle} (wanted: × ${wanted} or less)`,
    ...table([['', ...names, 'ratio'], ...rows]),
    '',
    `cursor: page 1 and page ${farPage} of 1,000,000 documents (wanted: × ${wanted} or less)`,
    ...table([
      ['', 'page 1', `page ${farPage}`, 'ratio'],
      ['by a cursor', ms(cursor.first), ms(cursor.far), times(cursor.ratio)],
      ['  blocks', cursor.blocks.first.toFixed(1), cursor.blocks.far.toFixed(1), ''],
    ]),
  ];
}
