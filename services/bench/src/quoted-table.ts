import { readFileSync, writeFileSync } from 'node:fs';
import { markdownTable, replaceMarked } from '@granary/operator/program/markdown';
import { machineLine, type Machine } from './machine';
import { namesOf } from './records';
import type { Result, Results } from './report';
import { runs } from './runs';
import type { SideName } from './sides';

/** The columns of the table, by the sides that they show. */
const columns: Record<SideName, string> = {
  embedded: '`npm start`',
  split: 'two processes',
  usual: 'conventional',
  bare: 'bare `node:http`',
};

/** The machine and the lengths of the runs behind the figures. */
export interface Provenance {
  machine: Machine;
  options: { rounds: number; seconds: number };
  /** Date and time as ISO text. */
  at: string;
}

/**
 * The one table of Markdown that pages quote: the rate of each run on each side, and the processor time of one request
 * in each process, the last of which is Postgres. `results` must have all sides.
 */
export function quotedTable(results: Results, { machine, options, at }: Provenance): string {
  const head = ['', ...Object.values(columns), 'CPU of conventional: over `npm start`', 'over two processes'];
  const rows = namesOf(results).map((run) => {
    const { title, unit } = runs[run];
    const sides = results[run]!;
    const ratio = (side: SideName) => sides[side]?.cpuRatios.usual?.toFixed(2) ?? '';
    const cells = namesOf(columns).map((side) => cellOf(sides[side]));
    return [`${title.split(':')[0]}, ${unit}/s`, ...cells, ratio('embedded'), ratio('split')];
  });
  const { rounds, seconds } = options;
  const provenance = `_${machineLine(machine)}; medians of ${rounds} rounds of ${seconds} s, ${at.slice(0, 10)}._`;
  return `${markdownTable([head, ...rows])}\n\n${provenance}`;
}

const cellOf = (result: Result | undefined): string =>
  result ? `${count(result.perSecond)} (${Object.values(result.cpuUs).map(count).join(' + ')} µs)` : '';

const count = (value: number): string => Math.round(value).toLocaleString('en-US');

const begin = '<!-- bench: table -->';

/** Throws an Error for a page that has no place for the table, between this mark and `<!-- end of bench -->`. */
export function checkPages(pages: readonly string[]): void {
  const unmarked = pages.filter((page) => !readFileSync(page, 'utf8').includes(begin));
  if (unmarked.length > 0) throw new Error(`${unmarked.join(', ')}: there is no ${begin}`);
}

/** Replaces the table on the pages that quote it. */
export function quoteOn(pages: readonly string[], table: string): void {
  for (const page of pages) {
    const text = readFileSync(page, 'utf8');
    writeFileSync(
      page,
      replaceMarked(text, 'bench', () => table),
    );
  }
}
