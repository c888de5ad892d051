import { setTimeout as delay } from 'node:timers/promises';
import { fetchJson } from './fetch-json';
import { loadDocuments, settle } from './measure';
import { median, table } from './report';
import { startSide, type App, type GranarySide } from './sides';
import type { Lengths, Tools } from './tools';

/** The number of expired documents: more than a purge deletes while it is measured. */
const expiredCount = 50_000;
const writers = 32;
const stepMs = 20;
const stepsMax = 6_000;
/** The least ratio to the rate without a purge. */
const wantedRatio = 0.9;
const appName = 'purged';

/** Medians of the rounds: writes per second, and purged documents per second. */
interface PurgeResult {
  alone: number;
  beside: number;
  ratio: number;
  purged: number;
}

type NumberedApp = App & { nextNumber: number };

export const purgeTitle = `purge: ${writers} writers of an app while documents past their retention are purged from another collection of it`;

/**
 * Measures writers alone and while a purge of the same app runs, alternately. To be purged, documents are dated back in
 * the database.
 */
export async function measurePurge(tools: Tools, { rounds, seconds }: Lengths): Promise<PurgeResult> {
  const { directory, onStart, postgres, postgresPid } = tools;
  const settings = { data: { MAINTENANCE_EVERY_MS: '100' } };
  const side = await startSide('embedded', { as: 'purge', postgres, directory, onStart, settings });
  const app: NumberedApp = { ...(await side.openApp(appName)), nextNumber: expiredCount };
  await app.prepare(false);
  const results: Array<Omit<PurgeResult, 'ratio'>> = [];
  const write = () => writesPerSecond(tools, side, app, seconds);
  await write();
  for (let round = 0; round < rounds; round++) {
    await loadDocuments(tools.load, { name: side.name, port: side.port, requests: app.requests }, expiredCount);
    await dateBack(postgres, `${side.prefix}_data`);
    await settle([side], postgresPid);
    const before = await write();
    await settle([side], postgresPid);
    await keepDays(side, app, 30);
    await countBelow(app, expiredCount);
    const startedMs = performance.now();
    const left = await app.count('documents');
    const beside = await write();
    const leftAfter = await app.count('documents');
    const purged = ((left - leftAfter) * 1_000) / (performance.now() - startedMs);
    if (leftAfter === 0) throw new Error('The purge has ended before the writers.');
    await countBelow(app, 1);
    await keepDays(side, app, null);
    await settle([side], postgresPid);
    const after = await write();
    results.push({ alone: (before + after) / 2, beside, purged });
  }
  const medianOf = (value: (each: Omit<PurgeResult, 'ratio'>) => number) => median(results.map(value));
  return {
    alone: medianOf((each) => each.alone),
    beside: medianOf((each) => each.beside),
    ratio: medianOf((each) => each.beside / each.alone),
    purged: medianOf((each) => each.purged),
  };
}

async function writesPerSecond(
  { load }: Tools,
  { port }: GranarySide,
  app: NumberedApp,
  seconds: number,
): Promise<number> {
  const firstNumber = app.nextNumber;
  const requestsMax = 1_000_000;
  app.nextNumber += requestsMax;
  const run = { ...app.requests.insert, port, connections: writers, seconds, firstNumber, requestsMax };
  const { requests, refused } = await load.call('run', run);
  if (refused !== undefined) throw new Error(`A write was refused: ${refused}`);
  return requests / seconds;
}

async function dateBack(postgres: Tools['postgres'], database: string): Promise<void> {
  const { rows } = await postgres.call('execute', {
    database,
    text: `select format('a_%s.c_%s', a.number, c.number) as name from collection c
           join application a on a.number = c.app_number where a.app_id = '${appName}' and c.name = 'documents'`,
  });
  await postgres.call('execute', {
    database,
    text: `update ${String(rows[0]!['name'])} set updated_at = updated_at - interval '400 days'`,
  });
}

const keepDays = ({ url }: GranarySide, { headers }: App, days: number | null) =>
  fetchJson(`${url}/api/apps/${appName}/collections/documents/retention`, {
    headers,
    body: { retention_days: days },
  });

/** Waits until fewer than `bound` documents are left. */
async function countBelow({ count }: App, bound: number): Promise<void> {
  for (let left = stepsMax; left > 0; left--) {
    if ((await count('documents')) < bound) return;
    await delay(stepMs);
  }
  throw new Error('Nothing is purged.');
}

/** Formats the table of the case. */
export function purgeLines({ alone, beside, ratio, purged }: PurgeResult): string[] {
  const rate = (perSecond: number) => Math.round(perSecond).toLocaleString('en-US');
  const rows = [
    ['alone', rate(alone), '', ''],
    ['beside a purge', rate(beside), `× ${ratio.toFixed(2)}`, rate(purged)],
  ];
  return ['', `${purgeTitle} (wanted: × ${wantedRatio})`, ...table([['', 'writes/s', 'ratio', 'purged/s'], ...rows])];
}
