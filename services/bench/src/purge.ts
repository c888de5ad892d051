import { setTimeout as delay } from 'node:timers/promises';
import { fetchJson } from './fetch-json.mjs';
import { loadDocuments, settle } from './measure.mjs';
import { median, table } from './report.mjs';
import { startSide } from './sides.mjs';

/** More than a purge deletes while it is measured. */
const expired = 50_000;
const writers = 32;
const stepMs = 20;
const stepsMax = 6_000;
/** Of the rate without a purge, at least. */
const wanted = 0.9;
const app = 'purged';

export const purgeTitle = `purge: ${writers} writers of an app while documents past their retention are purged from another collection of it`;

/**
 * Measures writers alone and while a purge of the same app runs, alternately. The documents that are purged are dated
 * back in the database. Returns medians: `{alone, beside, ratio}` in writes per second, and `purged` documents per
 * second.
 */
export async function measurePurge(tools, { rounds, seconds }) {
  const { directory, started, postgres, postgresPid } = tools;
  const settings = { data: { MAINTENANCE_EVERY_MS: '100' } };
  const side = await startSide('embedded', { as: 'purge', postgres, directory, started, settings });
  const own = { ...(await side.openApp(app)), nextNumber: expired };
  await own.prepare(false);
  const results = [];
  const write = () => writesPerSecond(tools, side, own, seconds);
  await write();
  for (let round = 0; round < rounds; round++) {
    await loadDocuments(tools.load, { name: side.name, port: side.port, requests: own.requests }, expired);
    await dateBack(postgres, `${side.prefix}_data`);
    await settle([side], postgresPid);
    const before = await write();
    await settle([side], postgresPid);
    await keepDays(side, own, 30);
    await countBelow(own, expired);
    const startedMs = performance.now();
    const left = await own.count('documents');
    const beside = await write();
    const leftAfter = await own.count('documents');
    const purged = ((left - leftAfter) * 1_000) / (performance.now() - startedMs);
    if (leftAfter === 0) throw new Error('The purge has ended before the writers.');
    await countBelow(own, 1);
    await keepDays(side, own, null);
    await settle([side], postgresPid);
    const after = await write();
    results.push({ alone: (before + after) / 2, beside, purged });
  }
  const medianOf = (value) => median(results.map(value));
  return {
    alone: medianOf((each) => each.alone),
    beside: medianOf((each) => each.beside),
    ratio: medianOf((each) => each.beside / each.alone),
    purged: medianOf((each) => each.purged),
  };
}

async function writesPerSecond({ load }, { port }, own, seconds) {
  const firstNumber = own.nextNumber;
  const requestsMax = 1_000_000;
  own.nextNumber += requestsMax;
  const run = { ...own.requests.insert, port, connections: writers, seconds, firstNumber, requestsMax };
  const { requests, refused } = await load.call('run', run);
  if (refused !== undefined) throw new Error(`A write was refused: ${refused}`);
  return requests / seconds;
}

async function dateBack(postgres, database) {
  const { rows } = await postgres.call('execute', {
    database,
    text: `select format('a_%s.c_%s', a.number, c.number) as name from collection c
           join application a on a.number = c.app_number where a.app_id = '${app}' and c.name = 'documents'`,
  });
  await postgres.call('execute', {
    database,
    text: `update ${rows[0].name} set updated_at = updated_at - interval '400 days'`,
  });
}

const keepDays = ({ url }, { headers }, days) =>
  fetchJson(`${url}/api/apps/${app}/collections/documents/retention`, {
    headers,
    body: { retention_days: days },
  });

async function countBelow({ count }, bound) {
  for (let left = stepsMax; left > 0; left--) {
    if ((await count('documents')) < bound) return;
    await delay(stepMs);
  }
  throw new Error('Nothing is purged.');
}

/** Formats the table of the case. */
export function purgeLines({ alone, beside, ratio, purged }) {
  const rate = (perSecond) => Math.round(perSecond).toLocaleString('en-US');
  const rows = [
    ['alone', rate(alone), '', ''],
    ['beside a purge', rate(beside), `× ${ratio.toFixed(2)}`, rate(purged)],
  ];
  return ['', `${purgeTitle} (wanted: × ${wanted})`, ...table([['', 'writes/s', 'ratio', 'purged/s'], ...rows])];
}
