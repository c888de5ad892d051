import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { postgresTimeUs, postgresUsage, processorTimeUs, startProcess } from './processes.mjs';
import { median, table } from './report.mjs';

const run = promisify(execFile);

/**
 * Of pgbench's simple updates, of the rate of spread transfers, in milliseconds, and of the rate before the history.
 */
const wanted = { spread: 4, hot: 0.8, p99Ms: 20, history: 1.1 };
const historyEntries = 1_000_000;
const pgbenchScale = 20;
const pgbenchClients = 16;

export const ledgerTitle = 'ledger: transfers between 20,000 wallets, beside pgbench -N on the same server';

/**
 * Measures transfers per second, spread and with one hot account, in batches and singly; the 99th percentile at half of
 * the rate; and the rate after a million more entries. Each round runs everything once, pgbench too. Returns medians.
 */
export async function measureLedger(tools, { rounds, seconds }) {
  const { postgres, started } = tools;
  const urls = await postgres.call('makeDatabases', ['bench_ledger', 'bench_pgbench']);
  const child = startProcess('granary/ledger.mjs');
  started(child);
  await child.call('start', urls.bench_ledger);
  const pgbench = await openPgbench(urls.bench_pgbench);
  await postgres.call('tidy');

  const results = [];
  await child.call('run', { mode: 'batched', isHot: false, seconds });
  for (let round = 0; round < rounds; round++) {
    const pgbenchRate = await pgbench?.measure(seconds);
    const spread = await withCpu(
      tools,
      child,
      () => child.call('run', { mode: 'batched', isHot: false, seconds }),
      seconds,
    );
    const hot = await child.call('run', { mode: 'batched', isHot: true, seconds });
    const spreadSingly = await child.call('run', { mode: 'singly', isHot: false, seconds });
    const hotSingly = await child.call('run', { mode: 'singly', isHot: true, seconds });
    const p99Ms = await child.call('pace', { perSecond: spread.rate / 2, isHot: false, seconds });
    results.push({
      pgbench: pgbenchRate,
      spread: spread.rate,
      cpuUs: spread.cpuUs,
      hot,
      spreadSingly,
      hotSingly,
      p99Ms,
    });
  }
  await child.call('addHistory', historyEntries);
  await postgres.call('tidy');
  await child.call('run', { mode: 'batched', isHot: false, seconds });
  for (const result of results)
    result.afterHistory = await child.call('run', { mode: 'batched', isHot: false, seconds });

  const medianOf = (value) => median(results.map(value));
  const fields = ['spread', 'cpuUs', 'hot', 'spreadSingly', 'hotSingly', 'p99Ms', 'afterHistory'];
  return {
    ...Object.fromEntries(fields.map((field) => [field, medianOf((result) => result[field])])),
    ...(pgbench && {
      pgbench: medianOf((result) => result.pgbench),
      ratio: medianOf((each) => each.spread / each.pgbench),
    }),
    hotRatio: medianOf((result) => result.hot / result.spread),
    historyRatio: medianOf((result) => result.spread / result.afterHistory),
  };
}

/** A rate, with the processor time of the ledger's process and of Postgres for each transfer. */
async function withCpu({ postgresPid }, child, measure, seconds) {
  const look = () => ({ own: processorTimeUs(child.pid), postgres: postgresUsage(postgresPid, 'bench_ledger') });
  const before = look();
  const rate = await measure();
  const after = look();
  const count = rate * seconds;
  return { rate, cpuUs: (after.own - before.own + postgresTimeUs(before.postgres, after.postgres)) / count };
}

/** Undefined where there is no pgbench, which comes with a system's packages of Postgres. */
async function openPgbench(url) {
  const found = await run('pgbench', ['--version']).catch(() => undefined);
  if (!found) return undefined;
  await run('pgbench', ['--initialize', '--quiet', `--scale=${pgbenchScale}`, url]);
  return {
    measure: async (seconds) => {
      const options = ['--skip-some-updates', '--no-vacuum', '--protocol=prepared'];
      const load = [`--client=${pgbenchClients}`, '--jobs=2', `--time=${Math.ceil(seconds)}`];
      const { stdout } = await run('pgbench', [...options, ...load, url]);
      return Number(/^tps = ([\d.]+)/m.exec(stdout)[1]);
    },
  };
}

/** Formats the table of results. */
export function ledgerLines(measured) {
  const rate = (value) => `${Math.round(value).toLocaleString('en-US')}/s`;
  const times = (value) => `× ${value.toFixed(2)}`;
  const rows = [
    measured.pgbench === undefined
      ? ['pgbench -N', 'not found', '', '']
      : ['pgbench -N', rate(measured.pgbench), '', ''],
    [
      'spread, in batches',
      rate(measured.spread),
      measured.ratio ? `${times(measured.ratio)} of pgbench` : '',
      `× ${wanted.spread}`,
    ],
    ['one hot account, in batches', rate(measured.hot), `${times(measured.hotRatio)} of spread`, `× ${wanted.hot}`],
    ['spread, singly', rate(measured.spreadSingly), '', ''],
    ['one hot account, singly', rate(measured.hotSingly), '', ''],
    ['p99 at half load', `${measured.p99Ms.toFixed(1)} ms`, '', `${wanted.p99Ms} ms`],
    [
      'after 1,000,000 entries',
      rate(measured.afterHistory),
      `${times(measured.historyRatio)} slower`,
      `× ${wanted.history}`,
    ],
    ['CPU of a transfer', `${measured.cpuUs.toFixed(1)} µs`, '', ''],
  ];
  return ['', ledgerTitle, ...table([['', '', '', 'wanted'], ...rows])];
}
