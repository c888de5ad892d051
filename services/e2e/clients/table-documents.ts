import type { Random } from '../../data/test/support/random';

/** A number by the text that it was stored with. */
export class Digits {
  constructor(readonly text: string) {}
}

export type Value = string | boolean | null | Digits | Value[] | Map<string, Value>;

export type ColumnType = 'string' | 'number' | 'boolean' | 'json';

export interface Column {
  steps: readonly string[];
  type: ColumnType;
}

/** The values of a document in the columns; undefined where it has none. */
export type Row = ReadonlyArray<Value | undefined>;

export const pathOf = ({ steps }: Column): string => steps.join('.');

/** The JSON text of a value, without white space. */
export function textOf(value: Value): string {
  if (value instanceof Digits) return value.text;
  if (Array.isArray(value)) return `[${value.map(textOf).join(',')}]`;
  if (!(value instanceof Map)) return JSON.stringify(value);
  return `{${[...value].map(([name, member]) => `${JSON.stringify(name)}:${textOf(member)}`).join(',')}}`;
}

/** The text of a value in a cell. */
export function cellOf(value: Value | undefined): string {
  if (value === undefined || value === null) return '';
  return typeof value === 'string' ? value : textOf(value);
}

/** The document that has these values in the columns. */
export function documentOf(columns: readonly Column[], row: Row): Map<string, Value> {
  const document = new Map<string, Value>();
  for (const [index, { steps }] of columns.entries()) {
    const value = row[index];
    if (value === undefined) continue;
    let object = document;
    for (const step of steps.slice(0, -1)) {
      if (!object.has(step)) object.set(step, new Map());
      object = object.get(step) as Map<string, Value>;
    }
    object.set(steps.at(-1)!, value);
  }
  return document;
}

/** Names that CSV, JSON, a spreadsheet or a list in a URL could take for something else. */
const strangeNames = [
  'a,b',
  'say "so"',
  '"',
  "it's",
  'semi;colon',
  'bar|bar',
  'tab\there',
  'line\nbreak',
  'both\r\nends',
  '=sum',
  '-',
  '#',
  'a:string',
  '[x]',
  '{y',
  'ünï 😀',
  'two words',
  'constructor',
];
const namesWithSpaces = [' before', 'behind ', ' ', '\ufeffmark', '\u00a0'];
const letters = [...'ab,;|"\'\\\n\r\t =+-@ü€😀'];
const strangeTexts = [
  '',
  ' before',
  'behind ',
  '=1+1',
  '+49',
  '-1',
  '@x',
  '\tx',
  '\rx',
  '\nx',
  '＝1',
  '\r\n',
  '""',
  'null',
  'true',
  '1.50',
  '{"a":1}',
  '[1]',
  '\ufeff',
  '\u2028',
];
const digits = [
  '0',
  '-0',
  '-0.0',
  '7',
  '-1',
  '1.50',
  '1E+2',
  '1e308',
  '12345678901234567890',
  '0.1000000000000000000001',
];

export interface TableOptions {
  /** Whether names have spaces around them, which are part of a name only within quotes. */
  hasSpaces: boolean;
  /** Whether documents lack values; null is as good as none. */
  hasGaps: boolean;
  hasEmptyTexts: boolean;
}

/** Makes columns, and documents with values in them. */
export class TableGenerator {
  readonly columns: readonly Column[];

  constructor(
    private readonly random: Random,
    private readonly options: TableOptions,
  ) {
    const names = [...strangeNames, ...(options.hasSpaces ? namesWithSpaces : [])];
    const name = () => names.splice(random(names.length), 1)[0]!;
    // One at least, wherever there are some.
    const first = options.hasSpaces ? names.splice(-1 - random(namesWithSpaces.length), 1)[0]! : name();
    this.columns = [
      { steps: ['id'], type: 'string' },
      { steps: [first], type: 'string' },
      { steps: [name()], type: 'string' },
      { steps: [name()], type: 'number' },
      { steps: ['object', 'text'], type: 'string' },
      { steps: ['object', name()], type: 'number' },
      { steps: ['object', name(), name()], type: 'boolean' },
      { steps: [name()], type: 'json' },
      { steps: ['text'], type: 'string' },
      { steps: ['is_new'], type: 'boolean' },
    ];
  }

  /** The first has all columns, so that they are in this order in all of its documents. */
  rows(count: number): Row[] {
    return Array.from({ length: count }, (_, number) => {
      const id = `${String(number).padStart(3, '0')}${this.pick(['', ',', '"', ';', ' ', 'ü', "'=1"])}`;
      return [id, ...this.columns.slice(1).map((column) => this.valueOf(column, number === 0))];
    });
  }

  private valueOf({ type }: Column, isFirst: boolean): Value | undefined {
    if (this.options.hasGaps && !isFirst && this.random(4) === 0) return this.pick([undefined, null]);
    if (type === 'number') return new Digits(this.pick(digits));
    if (type === 'boolean') return this.random(2) === 0;
    return type === 'json' ? this.list(2) : this.text();
  }

  private text(): string {
    const some = () => Array.from({ length: this.random(8) }, () => this.pick(letters)).join('');
    const text = this.random(2) === 0 ? some() : this.pick(strangeTexts);
    return text === '' && !this.options.hasEmptyTexts ? this.text() : text;
  }

  private list(depth: number): Value {
    if (this.random(6) === 0) return new Map();
    return Array.from({ length: this.random(4) }, (): Value => {
      const kind = this.random(depth > 0 ? 6 : 4);
      if (kind === 0) return null;
      if (kind === 1) return new Digits(this.pick(digits));
      if (kind < 4) return this.pick(strangeTexts);
      return kind === 4 ? this.list(depth - 1) : new Map([[this.pick(strangeNames), this.list(depth - 1)]]);
    });
  }

  private pick<T>(choices: readonly T[]): T {
    return choices[this.random(choices.length)]!;
  }
}
