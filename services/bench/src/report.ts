import type { Measurement } from './measure';
import { namesOf, recordOf } from './records';
import { runs, type RunName } from './runs';
import type { BaselineName, SideName } from './sides';

/** The figures of all rounds: medians, the number of requests, and the maximum of memory. */
export interface Result {
  perSecond: number;
  p50Ms: number;
  p99Ms: number;
  requests: number;
  /** Processor time per request by process. */
  cpuUs: Record<string, number>;
  memoryMib: Record<string, number>;
  /** The ratio of its rate to that of each baseline, as the median over the rounds. */
  ratios: Partial<Record<BaselineName, number>>;
  /**
   * The ratio of each baseline's processor time per request to its own, as the median over the rounds; it hardly
   * depends on other load on the machine.
   */
  cpuRatios: Partial<Record<BaselineName, number>>;
}

/** The results by run and side. */
export type Results = ByRunAndSide<Result>;
export type ByRunAndSide<Value> = Partial<Record<RunName, Partial<Record<SideName, Value>>>>;

/** Aggregates all rounds of each run of each side. */
export function summarize(measurements: ByRunAndSide<Measurement[]>): Results {
  const results: Results = {};
  for (const run of namesOf(measurements)) {
    const sides = measurements[run]!;
    results[run] = recordOf(namesOf(sides), (side) => summarizeSide(sides, side));
  }
  return results;
}

function summarizeSide(sides: Partial<Record<SideName, Measurement[]>>, side: SideName): Result {
  const rounds = sides[side]!;
  const ratios: Result['ratios'] = {};
  const cpuRatios: Result['cpuRatios'] = {};
  for (const baseline of ['usual', 'bare'] as const) {
    const others = sides[baseline];
    if (!others || baseline === side) continue;
    ratios[baseline] = median(rounds.map(({ perSecond }, i) => perSecond / others[i]!.perSecond));
    cpuRatios[baseline] = median(rounds.map(({ cpuUs }, i) => total(others[i]!.cpuUs) / total(cpuUs)));
  }
  const processes = Object.keys(rounds[0]!.cpuUs);
  const byProcess = (field: 'cpuUs' | 'memoryMib', choose: (values: number[]) => number) =>
    recordOf(processes, (name) => choose(rounds.map((round) => round[field][name] ?? 0)));
  return {
    perSecond: median(rounds.map((round) => round.perSecond)),
    p50Ms: median(rounds.map((round) => round.p50Ms)),
    p99Ms: median(rounds.map((round) => round.p99Ms)),
    requests: rounds.reduce((sum, round) => sum + round.requests, 0),
    cpuUs: byProcess('cpuUs', median),
    memoryMib: byProcess('memoryMib', (values) => Math.max(...values)),
    ratios,
    cpuRatios,
  };
}

/** Formats one table per run. `earlier` contains previous results, for the change. */
export function resultLines(results: Results, earlier: Results | undefined): string[] {
  return namesOf(results).flatMap((run) => {
    const sides = results[run]!;
    const { title, unit, target } = runs[run];
    const header = ['', `${unit}/s`, 'p50 ms', 'p99 ms', 'x usual', 'x bare', 'CPU x usual', 'CPU µs per request'];
    const rows = namesOf(sides).map((side) => {
      const result = sides[side]!;
      return [
        side,
        rounded(result.perSecond),
        result.p50Ms.toFixed(1),
        result.p99Ms.toFixed(1),
        ratioText(result.ratios.usual),
        ratioText(result.ratios.bare),
        ratioText(result.cpuRatios.usual),
        processorTimes(result.cpuUs),
        ...(earlier ? [changeText(result, earlier[run]?.[side])] : []),
      ];
    });
    if (earlier) header.push('since then');
    return ['', `${title} (wanted: ${target})`, ...table([header, ...rows], 6)];
  });
}

/** Formats the largest resident memory of each process after any run. */
export function memoryLines(results: Results): string[] {
  const largest: Record<string, Record<string, number>> = {};
  for (const sides of Object.values(results)) {
    for (const [side, { memoryMib }] of Object.entries(sides)) {
      const ofSide = (largest[side] ??= {});
      for (const [name, mib] of Object.entries(memoryMib)) ofSide[name] = Math.max(ofSide[name] ?? 0, mib);
    }
  }
  const lines = Object.entries(largest).map(([side, byProcess]) => {
    const parts = Object.entries(byProcess).map(([name, mib]) => `${name} ${rounded(mib)}`);
    return `  ${side.padEnd(9)} ${parts.join(' + ')}`;
  });
  return ['', 'memory in MiB, the maximum after any run (of Postgres: private memory of its connections)', ...lines];
}

/** The sum of processor times of all processes. */
export const total = (cpuUs: Record<string, number>): number => Object.values(cpuUs).reduce((sum, us) => sum + us, 0);

/** The median; NaN of no values. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** The median for each process of processor times by process. */
export const mediansByProcess = (rounds: ReadonlyArray<Record<string, number>>): Record<string, number> =>
  recordOf(Object.keys(rounds[0]!), (process) => median(rounds.map((times) => times[process]!)));

const rounded = (value: number) => (value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString('en-US'));
const ratioText = (value: number | undefined) => (value === undefined || Number.isNaN(value) ? '' : value.toFixed(2));

/** Formats processor times by process, in µs. */
export function processorTimes(cpuUs: Record<string, number>): string {
  const parts = Object.entries(cpuUs).map(([name, us]) => `${name} ${rounded(us)}`);
  return parts.length === 0 ? 'unknown here' : parts.join(' + ');
}

/** The change of the ratios to *usual* if available, because rates drift from hour to hour; else of the rate. */
function changeText(now: Result, then: Result | undefined): string {
  if (!then) return 'not measured';
  const pairs: Array<[name: string, before: number | undefined, after: number | undefined]> = [
    ['x usual', then.ratios.usual, now.ratios.usual],
    ['CPU x usual', then.cpuRatios.usual, now.cpuRatios.usual],
  ];
  const changes = pairs.flatMap(([name, before, after]) => (before && after ? [{ name, before, after }] : []));
  if (changes.length === 0) changes.push({ name: 'rate', before: then.perSecond, after: now.perSecond });
  return changes
    .map(({ name, before, after }) => {
      const percent = (after / before - 1) * 100;
      const was = before < 100 ? before.toFixed(2) : rounded(before);
      return `${name} ${percent < 0 ? '' : '+'}${percent.toFixed(0)} % (was ${was})`;
    })
    .join(', ');
}

/** Formats the rows in columns; the first is aligned left, the next `figures` ones right, as figures are. */
export function table(rows: readonly string[][], figures = rows[0]!.length - 2): string[] {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const isText = (column: number) => column === 0 || column > figures;
  return rows.map((row) => {
    const cells = row.map((cell, i) => (isText(i) ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!)));
    return `  ${cells.join('  ').trimEnd()}`;
  });
}
