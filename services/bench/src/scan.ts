import { alternately } from './alternately.mjs';
import { createCollection } from './app-setup.mjs';
import { fetchJson } from './fetch-json.mjs';
import { loadDocuments } from './measure.mjs';
import { startProcess } from './processes.mjs';
import { table } from './report.mjs';
import { startSide } from './sides.mjs';

const count = 1_000_000;
/** Scores above this: some of a hundred thousand. */
const scanned = { score: { gte: 999_900 } };
const wanted = 1.5;

export const scanTitle =
  'scan: a filter without an index over 1,000,000 documents, beside SQL that an expert writes by hand';

/**
 * Starts Granary in one process and a process with the expert's statement, with the same documents, and measures both
 * alternately, one request at a time. Returns `{granary, expert, ratio}`: medians of milliseconds, and of their ratio
 * in a round.
 */
export async function measureScan(tools, options) {
  const { directory, started, postgres } = tools;
  const side = await startSide('embedded', { as: 'scan', postgres, directory, started });
  const app = await side.openApp('scan');
  await createCollection(side, 'scan', app, 'documents');
  await loadDocuments(tools.load, { name: side.name, port: side.port, requests: app.requests }, count);
  const expert = startProcess('baselines/expert-scan.mjs');
  tools.started(expert);
  const urls = await tools.postgres.call('makeDatabases', ['bench_expert_scan']);
  const { port } = await expert.call('start', { databaseUrl: urls.bench_expert_scan });
  await expert.call('fill', { count });
  await tools.postgres.call('tidy');
  const body = { root: 'scan::documents', find: scanned, limit: 100, count: 'none' };
  const headers = { ...app.headers, 'Content-Type': 'application/json' };
  const requests = {
    granary: { method: 'POST', path: '/list', headers, body: { text: JSON.stringify(body) } },
    expert: { method: 'GET', path: `/scan?${scanned.score.gte}`, headers: {}, port },
  };
  const [ours, theirs] = await Promise.all([
    fetchJson(`${side.url}/list`, { body, headers: app.headers }),
    fetchJson(`http://127.0.0.1:${port}${requests.expert.path}`),
  ]);
  if (
    ours.records.length === 0 ||
    ours.records.map(({ id }) => id).join() !== theirs.records.map(({ id }) => id).join()
  ) {
    throw new Error('Granary and the expert find different documents.');
  }
  return alternately(tools, side, requests, options, ['granary', 'expert']);
}

/** Formats the table of results. */
export function scanLines({ granary, expert, ratio }) {
  const ms = (value) => `${value.toFixed(0)} ms`;
  const row = ['a page', ms(granary), ms(expert), `× ${ratio.toFixed(2)}`];
  return ['', `${scanTitle} (wanted: × ${wanted} or less)`, ...table([['', 'Granary', 'by hand', 'ratio'], row])];
}
