import { alternately, type Alternation, type Read } from './alternately';
import { createCollection } from './app-setup';
import type { ExpertScanCalls } from './baselines/expert-scan';
import { fetchJson } from './fetch-json';
import { loadDocuments } from './measure';
import { startProcess } from './processes';
import { table } from './report';
import { startSide } from './sides';
import type { Lengths, Tools } from './tools';

const count = 1_000_000;
/** Few scores reach this: about ten in a hundred thousand documents. */
const filter = { score: { gte: 999_900 } };
const wantedRatio = 1.5;

/** Medians of milliseconds, and of their ratio in a round. */
type ScanResult = Alternation<'granary' | 'expert'>;

export const scanTitle =
  'scan: a filter without an index over 1,000,000 documents, beside SQL that an expert writes by hand';

/**
 * Starts Granary in one process and a process with the expert's statement, with the same documents, and measures both
 * alternately, one request at a time.
 */
export async function measureScan(tools: Tools, options: Lengths): Promise<ScanResult> {
  const { directory, onStart, postgres } = tools;
  const side = await startSide('embedded', { as: 'scan', postgres, directory, onStart });
  const app = await side.openApp('scan');
  await createCollection(side, 'scan', app, 'documents');
  await loadDocuments(tools.load, { name: side.name, port: side.port, requests: app.requests }, count);
  const expert = startProcess<ExpertScanCalls>('baselines/expert-scan.js');
  onStart(expert);
  const urls = await tools.postgres.call('makeDatabases', ['bench_expert_scan']);
  const { port } = await expert.call('start', { databaseUrl: urls['bench_expert_scan']! });
  await expert.call('fill', { count });
  await tools.postgres.call('tidy');
  const body = { root: 'scan::documents', find: filter, limit: 100, count: 'none' };
  const headers = { ...app.headers, 'Content-Type': 'application/json' };
  const requests: Record<'granary' | 'expert', Read> = {
    granary: { method: 'POST', path: '/list', headers, body: { text: JSON.stringify(body) } },
    expert: { method: 'GET', path: `/scan?${filter.score.gte}`, headers: {}, port },
  };
  const [ours, theirs] = await Promise.all([
    fetchJson<Records>(`${side.url}/list`, { body, headers: app.headers }),
    fetchJson<Records>(`http://127.0.0.1:${port}${requests.expert.path}`),
  ]);
  if (ours.records.length === 0 || idsOf(ours) !== idsOf(theirs)) {
    throw new Error('Granary and the expert find different documents.');
  }
  return alternately(tools, side, requests, options, ['granary', 'expert']);
}

interface Records {
  records: Array<{ id: string }>;
}

const idsOf = ({ records }: Records) => records.map(({ id }) => id).join();

/** Formats the table of results. */
export function scanLines({ granary, expert, ratio }: ScanResult): string[] {
  const ms = (value: number) => `${value.toFixed(0)} ms`;
  const row = ['a page', ms(granary), ms(expert), `× ${ratio.toFixed(2)}`];
  return ['', `${scanTitle} (wanted: × ${wantedRatio} or less)`, ...table([['', 'Granary', 'by hand', 'ratio'], row])];
}
