import { UsageError } from '../failure.ts';

/** The formats of files of documents. */
export const formats = ['ndjson', 'json', 'csv'] as const;
export type Format = (typeof formats)[number];

export interface FileKind {
  /** Undefined where the name does not say it. */
  format: Format | undefined;
  isGzip: boolean;
  /** The separator of a table whose cells have no commas between them. */
  separator: 'tab' | undefined;
}

const formatsByExtension = new Map<string, Format>([
  ['ndjson', 'ndjson'],
  ['jsonl', 'ndjson'],
  ['json', 'json'],
  ['csv', 'csv'],
  ['tsv', 'csv'],
]);

/** The kind of a file by its name: `books.csv`, `books.ndjson.gz`. */
export function kindOf(fileName: string): FileKind {
  const name = fileName.toLowerCase();
  const isGzip = name.endsWith('.gz');
  const extension = /\.([a-z]+)$/.exec(isGzip ? name.slice(0, -'.gz'.length) : name)?.[1] ?? '';
  return { format: formatsByExtension.get(extension), isGzip, separator: extension === 'tsv' ? 'tab' : undefined };
}

/** The paths in a list such as `id,author.name`. Throws UsageError. */
export function pathList(text: string, flag: string): string[] {
  const paths = text.split(',').map((path) => path.trim());
  if (paths.every((path) => path !== '')) return paths;
  throw new UsageError(`${flag} has an empty name in "${text}"`, `It is written as ${flag} id,author.name`);
}

const columnTypes = ['string', 'number', 'boolean', 'json'] as const;
export type ColumnType = (typeof columnTypes)[number];

/** The types of columns in a list such as `year:number,sold:boolean`. Throws UsageError. */
export function columnTypesOf(text: string): Record<string, ColumnType> {
  const entries = text.split(',').map((entry): [string, ColumnType] => {
    const colon = entry.lastIndexOf(':');
    const [name, type] = [entry.slice(0, Math.max(0, colon)).trim(), entry.slice(colon + 1).trim()];
    const known = columnTypes.find((each) => each === type);
    if (name !== '' && known) return [name, known];
    throw new UsageError(
      `--types cannot be read at "${entry}"`,
      `A type is one of ${columnTypes.join(', ')}: year:number`,
    );
  });
  const names = entries.map(([name]) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new UsageError(`--types names ${twice} twice`);
  return Object.fromEntries(entries);
}
