import { jsonText, plainText } from '../exact-json.ts';
import { visible, type Terminal } from './terminal.ts';

/** A column of a table: its title, and what of an item it shows. */
export type Columns<T> = Readonly<Record<string, (item: T) => unknown>>;

export const gap = 2;
/** Columns are cut to this width, at most. */
export const narrowest = 8;

/**
 * Prints a list: to a person as a table, to a pipe as lines of values between tabs under a line of titles, and with
 * --json as one array of the items themselves.
 */
export async function printList<T>(terminal: Terminal, items: readonly T[], columns: Columns<T>): Promise<void> {
  if (terminal.options.json) return terminal.print(jsonText(items));
  const titles = Object.keys(columns);
  const rows = items.map((item) => Object.values(columns).map((value) => plainText(value(item))));
  if (!terminal.isForPeople) {
    for (const row of [titles, ...rows]) await terminal.print(row.map(oneLine).join('\t'));
    return;
  }
  if (rows.length === 0) return terminal.say('There are none.');
  await printTable(terminal, [titles, ...rows]);
}

/** Prints rows, the first of which are the titles, as wide as the terminal is. */
export async function printTable(terminal: Terminal, rows: ReadonlyArray<readonly string[]>): Promise<void> {
  const [head, ...lines] = tableLines(rows, terminal.width);
  await terminal.print(terminal.styled('bold', head!));
  for (const line of lines) await terminal.print(line);
}

/** Prints one thing: to a person its members below each other, else as JSON. */
export async function printObject(terminal: Terminal, value: object): Promise<void> {
  if (!terminal.isForPeople) return terminal.print(jsonText(value));
  const members = Object.entries(value)
    .filter(([, each]) => each !== undefined)
    .map(([name, each]) => [oneLine(visible(name)), each] as const);
  const width = Math.max(...members.map(([name]) => textWidth(name)));
  for (const [name, each] of members) {
    const [first = '', ...others] = memberLines(each, terminal.width - width - gap);
    await terminal.print(`${terminal.styled('bold', padded(name, width))}  ${first}`.trimEnd());
    for (const line of others) await terminal.print(' '.repeat(width + gap) + line);
  }
}

/** A value in one line, or in more where it is an object or a list that is wider than that. */
function memberLines(value: unknown, width: number): string[] {
  const line = oneLine(visible(plainText(value)));
  if (typeof value !== 'object' || value === null || textWidth(line) <= width) return [line];
  return visible(jsonText(value, 2)).split('\n');
}

const oneLine = (text: string): string => text.replace(/[\t\r\n]+/g, ' ');

/**
 * The lines of a table of at most `width`: the widest columns are cut. The first one, which names the row, is cut only
 * where it takes more than half of the width.
 */
function tableLines(rows: ReadonlyArray<readonly string[]>, width: number): string[] {
  const cells = rows.map((row) => row.map((text) => oneLine(visible(text))));
  const widths = (cells[0] ?? []).map((_, column) =>
    cells.reduce((most, row) => Math.max(most, textWidth(row[column] ?? '')), 0),
  );
  let excess = widths.reduce((sum, each) => sum + each + gap, -gap) - width;
  while (excess > 0) {
    const isFirstKept = widths.length > 1 && widths[0]! <= width / 2;
    const cuttable = isFirstKept ? [0, ...widths.slice(1)] : widths;
    const widest = Math.max(...cuttable);
    if (widest <= narrowest) break;
    const column = cuttable.indexOf(widest);
    const second = Math.max(narrowest, ...cuttable.filter((_, index) => index !== column));
    const cut = Math.max(1, Math.min(excess, widest - second));
    widths[column] = widest - cut;
    excess -= cut;
  }
  return cells.map((row) =>
    row
      .map((text, column) => padded(shortened(text, widths[column]!), widths[column]!))
      .join(' '.repeat(gap))
      .trimEnd(),
  );
}

/** Characters that terminals show two columns wide, and marks that take none. */
const wide =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;
const combining = /\p{M}|\u200d|\ufe0f/u;

function textWidth(text: string): number {
  let width = 0;
  for (const character of text) width += combining.test(character) ? 0 : wide.test(character) ? 2 : 1;
  return width;
}

const padded = (text: string, width: number): string => text + ' '.repeat(Math.max(0, width - textWidth(text)));

/** A text that is cut where it takes more than so many columns. */
export function shortened(text: string, width: number): string {
  if (textWidth(text) <= width) return text;
  let cut = '';
  for (const character of text) {
    if (textWidth(cut + character) > width - 1) break;
    cut += character;
  }
  return `${cut}…`;
}
