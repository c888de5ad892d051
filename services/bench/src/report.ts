import { runs } from './runs.mjs';

/**
 * Aggregates all rounds: by run and side the medians of `{perSecond, p50Ms, p99Ms, requests, cpuUs}`, and the medians
 * of the ratios to each baseline per round: `ratios` of the rates, `cpuRatios` of the processor time per request. The
 * latter hardly depend on other load on the machine.
 */
export function summarize(measurements) {
  const results = {};
  for (const [run, sides] of Object.entries(measurements)) {
    results[run] = {};
    for (const [side, rounds] of Object.entries(sides)) {
      const ratios = {};
      const cpuRatios = {};
      for (const baseline of ['usual', 'bare']) {
        const others = sides[baseline];
        if (!others || baseline === side) continue;
        ratios[baseline] = median(rounds.map(({ perSecond }, i) => perSecond / others[i].perSecond));
        cpuRatios[baseline] = median(rounds.map(({ cpuUs }, i) => total(others[i].cpuUs) / total(cpuUs)));
      }
      const processes = Object.keys(rounds[0].cpuUs);
      const byProcess = (field, choose) =>
        Object.fromEntries(processes.map((name) => [name, choose(rounds.map((round) => round[field][name] ?? 0))]));
      results[run][side] = {
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
  }
  return results;
}

/** Formats one table per run. `earlier` contains previous results, for the change. */
export function resultLines(results, earlier) {
  return Object.entries(results).flatMap(([run, sides]) => {
    const { title, unit, target } = runs[run];
    const header = ['', `${unit}/s`, 'p50 ms', 'p99 ms', 'x usual', 'x bare', 'CPU x usual', 'CPU µs per request'];
    const rows = Object.entries(sides).map(([side, result]) => [
      side,
      rounded(result.perSecond),
      result.p50Ms.toFixed(1),
      result.p99Ms.toFixed(1),
      ratio(result.ratios.usual),
      ratio(result.ratios.bare),
      ratio(result.cpuRatios.usual),
      processorTimes(result.cpuUs),
    ]);
    if (earlier) {
      header.push('since then');
      rows.forEach((row) => row.push(change(sides[row[0]], earlier[run]?.[row[0]])));
    }
    return ['', `${title} (wanted: ${target})`, ...table([header, ...rows], 6)];
  });
}

/** The largest resident memory of each process after any run. */
export function memoryLines(results) {
  const largest = {};
  for (const sides of Object.values(results)) {
    for (const [side, { memoryMib }] of Object.entries(sides)) {
      largest[side] ??= {};
      for (const [name, mib] of Object.entries(memoryMib)) {
        largest[side][name] = Math.max(largest[side][name] ?? 0, mib);
      }
    }
  }
  const lines = Object.entries(largest).map(([side, byProcess]) => {
    const parts = Object.entries(byProcess).map(([name, mib]) => `${name} ${rounded(mib)}`);
    return `  ${side.padEnd(9)} ${parts.join(' + ')}`;
  });
  return ['', 'memory in MiB, the maximum after any run (of Postgres: private memory of its connections)', ...lines];
}

const total = (cpuUs) => Object.values(cpuUs).reduce((sum, us) => sum + us, 0);

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const rounded = (value) => (value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString('en-US'));
const ratio = (value) => (value === undefined || Number.isNaN(value) ? '' : value.toFixed(2));

export function processorTimes(cpuUs) {
  const parts = Object.entries(cpuUs).map(([name, us]) => `${name} ${rounded(us)}`);
  return parts.length === 0 ? 'unknown here' : parts.join(' + ');
}

/** The change of the ratios to *usual* if available, because rates drift from hour to hour; else of the rate. */
function change(now, then) {
  if (!then) return 'not measured';
  const changes = [
    ['x usual', then.ratios.usual, now.ratios.usual],
    ['CPU x usual', then.cpuRatios.usual, now.cpuRatios.usual],
  ].filter(([, before, after]) => before && after);
  if (changes.length === 0) changes.push(['rate', then.perSecond, now.perSecond]);
  return changes
    .map(([name, before, after]) => {
      const percent = (after / before - 1) * 100;
      const was = before < 100 ? before.toFixed(2) : rounded(before);
      return `${name} ${percent < 0 ? '' : '+'}${percent.toFixed(0)} % (was ${was})`;
    })
    .join(', ');
}

/** Formats the rows in columns; the first is aligned left, figures right. */
export function table(rows, figures = rows[0].length - 2) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  const isText = (column) => column === 0 || column > figures;
  return rows.map((row) => {
    const cells = row.map((cell, i) => (isText(i) ? cell.padEnd(widths[i]) : cell.padStart(widths[i])));
    return `  ${cells.join('  ').trimEnd()}`;
  });
}
