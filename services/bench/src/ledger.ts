import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { LedgerCalls } from './granary/ledger';
import { postgresTimeUs, postgresUsage, processorTimeUs, startProcess, type Child } from './processes';
import { recordOf } from './records';
import { median, table } from './report';
import type { Lengths, Tools } from './tools';

const execute = promisify(execFile);

/**
 * The goals: the least rate of spread transfers relative to pgbench's simple updates, the least rate with a hot account
 * relative to that of spread transfers, the highest p99 in milliseconds, and the largest ratio of the rate before the
 * history to the rate after it.
 */
const goals = { spread: 4, hot: 0.8, p99Ms: 20, history: 1.1 };
const historyEntries = 1_000_000;
const pgbenchScale = 20;
const pgbenchClients = 16;

/** The figures of a round, in transfers per second unless a name or a comment says otherwise. */
interface Round {
  spread: number;
  /** The processor time of a transfer. */
  cpuUs: number;
  hot: number;
  spreadSingly: number;
  hotSingly: number;
  p99Ms: number;
  afterHistory: number;
  /** The transactions per second of pgbench; undefined where it is not installed. */
  pgbench: number | undefined;
}

/** Medians of the rounds, and of ratios in a round. */
interface LedgerResult extends Omit<Round, 'pgbench'> {
  pgbench?: number;
  /** The ratio of the rate of spread transfers to that of pgbench. */
  ratio?: number;
  hotRatio: number;
  historyRatio: number;
}

interface Pgbench {
  /** Transactions per second. */
  measure: (seconds: number) => Promise<number>;
}

export const ledgerTitle = 'ledger: transfers between 20,000 wallets, beside pgbench -N on the same server';

/**
 * Measures transfers per second, spread and with one hot account, in batches and singly; the 99th percentile at half of
 * the rate; and the rate after a million more entries. Each round runs everything once, pgbench too. Returns medians.
 */
export async function measureLedger(tools: Tools, { rounds, seconds }: Lengths): Promise<LedgerResult> {
  const { postgres, onStart } = tools;
  const urls = await postgres.call('makeDatabases', ['bench_ledger', 'bench_pgbench']);
  const child = startProcess<LedgerCalls>('granary/ledger.js');
  onStart(child);
  await child.call('start', urls['bench_ledger']!);
  const pgbench = await openPgbench(urls['bench_pgbench']!);
  await postgres.call('tidy');

  const results: Round[] = [];
  await child.call('run', { mode: 'batched', isHot: false, seconds });
  for (let round = 0; round < rounds; round++) {
    const pgbenchRate = await pgbench?.measure(seconds);
    const spread = await withCpu(tools, child, seconds);
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
      afterHistory: 0,
    });
  }
  await child.call('addHistory', historyEntries);
  await postgres.call('tidy');
  await child.call('run', { mode: 'batched', isHot: false, seconds });
  for (const result of results) {
    result.afterHistory = await child.call('run', { mode: 'batched', isHot: false, seconds });
  }
  return summarize(results);
}

function summarize(results: readonly Round[]): LedgerResult {
  const medianOf = (value: (round: Round) => number) => median(results.map(value));
  const fields = ['spread', 'cpuUs', 'hot', 'spreadSingly', 'hotSingly', 'p99Ms', 'afterHistory'] as const;
  return {
    ...recordOf(fields, (field) => medianOf((result) => result[field])),
    ...(results[0]!.pgbench !== undefined && {
      pgbench: medianOf((result) => result.pgbench!),
      ratio: medianOf((result) => result.spread / result.pgbench!),
    }),
    hotRatio: medianOf((result) => result.hot / result.spread),
    historyRatio: medianOf((result) => result.spread / result.afterHistory),
  };
}

/** The rate of spread transfers, with the processor time of the ledger's process and of Postgres for each. */
async function withCpu({ postgresPid }: Tools, child: Child<LedgerCalls>, seconds: number) {
  const look = () => ({
    ledgerUs: processorTimeUs(child.pid) ?? NaN,
    postgres: postgresUsage(postgresPid, 'bench_ledger'),
  });
  const before = look();
  const rate = await child.call('run', { mode: 'batched', isHot: false, seconds });
  const after = look();
  const count = rate * seconds;
  return { rate, cpuUs: (after.ledgerUs - before.ledgerUs + postgresTimeUs(before.postgres, after.postgres)) / count };
}

/** Prepares pgbench, which comes with a system's packages of Postgres; undefined where it is not installed. */
async function openPgbench(url: string): Promise<Pgbench | undefined> {
  const version = await execute('pgbench', ['--version']).catch(() => undefined);
  if (!version) return undefined;
  await execute('pgbench', ['--initialize', '--quiet', `--scale=${pgbenchScale}`, url]);
  return {
    measure: async (seconds: number) => {
      const options = ['--skip-some-updates', '--no-vacuum', '--protocol=prepared'];
      const load = [`--client=${pgbenchClients}`, '--jobs=2', `--time=${Math.ceil(seconds)}`];
      const { stdout } = await execute('pgbench', [...options, ...load, url]);
      return Number(/^tps = ([\d.]+)/m.exec(stdout)![1]);
    },
  };
}

/** Formats the table of results. */
export function ledgerLines(result: LedgerResult): string[] {
  const rate = (value: number) => `${Math.round(value).toLocaleString('en-US')}/s`;
  const times = (value: number) => `× ${value.toFixed(2)}`;
  const rows = [
    result.pgbench === undefined ? ['pgbench -N', 'not found', '', ''] : ['pgbench -N', rate(result.pgbench), '', ''],
    [
      'spread, in batches',
      rate(result.spread),
      result.ratio ? `${times(result.ratio)} of pgbench` : '',
      `× ${goals.spread}`,
    ],
    ['one hot account, in batches', rate(result.hot), `${times(result.hotRatio)} of spread`, `× ${goals.hot}`],
    ['spread, singly', rate(result.spreadSingly), '', ''],
    ['one hot account, singly', rate(result.hotSingly), '', ''],
    ['p99 at half load', `${result.p99Ms.toFixed(1)} ms`, '', `${goals.p99Ms} ms`],
    [
      'after 1,000,000 entries',
      rate(result.afterHistory),
      `${times(result.historyRatio)} slower`,
      `× ${goals.history}`,
    ],
    ['CPU of a transfer', `${result.cpuUs.toFixed(1)} µs`, '', ''],
  ];
  return ['', ledgerTitle, ...table([['', '', '', 'wanted'], ...rows])];
}
