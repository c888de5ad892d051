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

export const growthTitle = 'growth: reads by an index at 10,000 to 1,000,000 documents';
/** Reads that an index serves; each finds a whole page in the smallest collection. */
const reads = {
  'equality, in an order': `category={category}&sort=-score&limit=${pageSize}`,
  'a range in its order': `views.$gte=500000&sort=views&limit=${pageSize}`,
  'the id': 'id={id}',
};

/**
 * Starts Granary in one process, with collections of each size, and measures their reads alternately, one request at a
 * time. Returns `{reads: {title: {size: ms, …, ratio}}, cursor: {first, far, ratio}}`:
 * medians of milliseconds, and of their ratio in a round.
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
      ...[size, { method: 'GET', path: `${dataPath(name)}?${query}&count=none`, headers: {}, ids: count }],
    ]);
    measured.reads[title] = await alternately(tools, side, Object.fromEntries(loads), options, [most, least]);
  }
  const cursor = await farCursor(side, apps[most].name);
  const page = { method: 'GET', headers: {}, path: `${dataPath(apps[most].name)}?${cursorQuery}` };
  const pages = { first: page, far: { ...page, path: `${page.path}&cursor=${encodeURIComponent(cursor)}` } };
  measured.cursor = await alternately(tools, side, pages, options, ['far', 'first']);
  return measured;
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
  const rows = Object.entries(measured.reads).map(([title, result]) => [
    ...[title, ...Object.keys(sizes).map((size) => ms(result[size])), times(result.ratio)],
  ]);
  const { cursor } = measured;
  return [
    ...['', `${growthTitle} (wanted: × ${wanted} or less)`, ...table([['', ...Object.keys(sizes), 'ratio'], ...rows])],
    ...['', `cursor: page 1 and page ${farPage} of 1,000,000 documents (wanted: × ${wanted} or less)`],
    ...table([
      ['', 'page 1', `page ${farPage}`, 'ratio'],
      ['by a cursor', ms(cursor.first), ms(cursor.far), times(cursor.ratio)],
    ]),
  ];
}
