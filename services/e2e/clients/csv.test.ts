import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { partsOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { describeWith, pythonForTests } from '@granary/testing/stack';
import { seededRandom, type Random } from '../../data/test/support/random';
import { readExport } from '../support/export-client';
import { borrowGranary, newApp, send, type Granary, type TestApp } from '../support/granary';
import { partHeaders, sendFile } from '../support/import-client';
import { runProgram, withFolder } from './generated';
import {
  cellOf,
  documentOf,
  pathOf,
  TableGenerator,
  textOf,
  type Column,
  type Row,
  type TableOptions,
  type Value,
} from './table-documents';

const cases = size({ run: 8, long: 400 });
const documentCount = 40;

const dialects = ['excel', 'excel-tab', 'unix', 'semicolon', 'bar'] as const;
type Dialect = (typeof dialects)[number];
const separators = { excel: ',', 'excel-tab': 'tab', unix: ',', semicolon: ';', bar: '|' } as const;
/** The other dialects have quotes only around cells that need them. */
const quotesAll = (dialect: Dialect): boolean => dialect === 'unix';
/** The second one begins a file with a byte order mark. */
const encodings = ['utf-8', 'utf-8-sig'] as const;
const empties = ['missing', 'null', 'string'] as const;
type Empty = (typeof empties)[number];

type Table = ReadonlyArray<ReadonlyArray<string | boolean | null>>;

/** A file that csv_files.py reads, or writes from a table or from another file. */
interface Job {
  read?: string;
  table?: Table;
  write?: string;
  dialect?: Dialect;
  encoding?: (typeof encodings)[number];
}

async function runJobs(folder: string, jobs: readonly Job[]): Promise<Table[]> {
  await writeFile(join(folder, 'jobs.json'), JSON.stringify(jobs));
  const printed = await runProgram(await pythonForTests(), ['-B', join(__dirname, 'python/csv_files.py')], {
    cwd: folder,
  });
  return JSON.parse(printed) as Table[];
}

class TableApp {
  constructor(
    readonly url: string,
    readonly app: TestApp,
  ) {}

  async store(collection: string, columns: readonly Column[], rows: readonly Row[]): Promise<void> {
    const data = rows.map((row) => textOf(documentOf(columns, row))).join(',');
    const body = `{"root":"${this.app.appId}::${collection}","data":[${data}]}`;
    const { status, text } = await send(this.url, 'POST', '/store', { key: this.app.key, body });
    expect([status, text]).toEqual([202, text]);
  }

  async export(collection: string, query: Record<string, string> = {}): Promise<string> {
    const path = `/api/apps/${this.app.appId}/collections/${collection}/export?${new URLSearchParams(query).toString()}`;
    const { status, text } = await readExport({ url: this.url, path, key: this.app.key });
    expect([path, status]).toEqual([path, 200]);
    return text;
  }

  async import(collection: string, bytes: Buffer, options: object): Promise<void> {
    const path = `/api/apps/${this.app.appId}/imports`;
    const begun = await this.app.call<{ import_id: string }>('POST', path, { collection, format: 'csv', ...options });
    expect([begun.status, begun.text]).toEqual([201, begun.text]);
    const answer = await sendFile({
      url: this.url,
      key: this.app.key,
      method: 'PATCH',
      path: `${path}/${begun.body.import_id}`,
      headers: partHeaders(0, true),
      bytes,
    });
    expect(answer).toMatchObject({ status: 200, body: { status: 'completed', written: documentCount, failed: 0 } });
  }
}

const typesOf = (columns: readonly Column[]): Record<string, string> =>
  Object.fromEntries(columns.filter(({ type }) => type !== 'string').map((column) => [pathOf(column), column.type]));

const linesOf = (columns: readonly Column[], rows: readonly Row[]): string =>
  rows.map((row) => `${textOf(documentOf(columns, row))}\n`).join('');

const pick = <T>(random: Random, choices: readonly T[]): T => choices[random(choices.length)]!;

describeWith(describe, 'python')('the module csv of Python', () => {
  let granary: Granary;
  beforeAll(async () => {
    granary = await borrowGranary('direct');
  });
  afterAll(() => granary?.stop());
  const newTables = async () => new TableApp(granary.url, await newApp(granary));

  test.each(partsOf('exports that Python reads', cases))(
    'reads the documents in an export (seed $seed)',
    async ({ seed, cases: count }) => {
      const random = seededRandom(seed);
      for (let number = 0; number < count; number += 1) await expectReadable(random, await newTables());
    },
    sizedLimitMs(limitMs(60_000)),
  );

  test.each(partsOf('imports that Python writes', cases))(
    'writes files that are imported as they were meant (seed $seed)',
    async ({ seed, cases: count }) => {
      const random = seededRandom(seed);
      for (let number = 0; number < count; number += 1) await expectImportable(random, await newTables());
    },
    sizedLimitMs(limitMs(60_000)),
  );

  test.each(partsOf('exports that Python copies', cases))(
    'copies an export, which comes back with the same bytes, as the export itself does (seed $seed)',
    async ({ seed, cases: count }) => {
      const random = seededRandom(seed);
      for (let number = 0; number < count; number += 1) {
        await expectCopied(random, await newTables());
        await expectRestored(random, await newTables());
      }
    },
    sizedLimitMs(limitMs(60_000)),
  );
});

const deletedColumn: Column = { steps: ['deleted'], type: 'boolean' };

/** Of each document the versions, the oldest first. */
interface Versions {
  columns: readonly Column[];
  documents: ReadonlyArray<readonly Row[]>;
}

/** Stores documents, half of which get a second version, and one of which is deleted by that. */
async function storeVersions(random: Random, tables: TableApp): Promise<Versions> {
  const generator = new TableGenerator(random, { hasSpaces: true, hasGaps: true, hasEmptyTexts: true });
  const columns = [...generator.columns, deletedColumn];
  const first = generator.rows(documentCount);
  const second = generator.rows(documentCount).map((row, index) => [first[index]![0], ...row.slice(1)]);
  const changed = second.filter((_, index) => index % 2 === 1);
  changed[2] = [...changed[2]!, true];
  await tables.store('films', columns, first);
  await tables.store('films', columns, changed);
  return {
    columns,
    documents: first.map((row, index) => (index % 2 === 1 ? [row, changed[(index - 1) / 2]!] : [row])),
  };
}

/** Texts that a spreadsheet would take for formulas, with an apostrophe. */
const escaped = (value: Value | undefined): string =>
  typeof value === 'string' && /^[=+\-@＝＋－＠\t\r\n]/.test(value) ? `'${value}` : cellOf(value);

async function expectReadable(random: Random, tables: TableApp): Promise<void> {
  const { columns, documents } = await storeVersions(random, tables);
  const present = documents.map((versions) => versions.at(-1)!).filter((row) => row.length < columns.length);
  const shownColumns = columns.slice(0, -1);
  const queries = {
    all: {},
    named: { columns: 'is_new,object,none,id' },
    escaped: { formulas: 'escape' },
    history: { history: 'true' },
  };
  await withFolder(async (folder) => {
    for (const [name, query] of Object.entries(queries)) {
      await writeFile(join(folder, name), await tables.export('films', { format: 'csv', ...query }));
    }
    const jobs = Object.keys(queries).map((name) => ({ read: name }));
    const [all, named, escapedTable, history] = await runJobs(folder, jobs);

    const names = shownColumns.map(pathOf);
    expect(all).toEqual([names, ...present.map((row) => shownColumns.map((_, index) => cellOf(row[index])))]);
    const expectedNamed = present.map((row) => {
      const document = documentOf(columns, row);
      return ['is_new', 'object', 'none', 'id'].map((name) => cellOf(document.get(name)));
    });
    expect(named).toEqual([['is_new', 'object', 'none', 'id'], ...expectedNamed]);
    const expectedEscaped = present.map((row) => shownColumns.map((_, index) => escaped(row[index])));
    expect(escapedTable).toEqual([names.map(escaped), ...expectedEscaped]);
    const versions = documents.flatMap((rows) => rows.map((row, index) => ({ row, version: index + 1 })));
    expect(history!.map((row) => row.filter((_, index) => index !== 3))).toEqual([
      ['id', 'version', 'height', 'deleted', ...columns.map((column) => `document.${pathOf(column)}`)],
      ...versions.map(({ row, version }) => [
        row[0],
        `${version}`,
        `${version}`,
        `${row.length === columns.length}`,
        ...columns.map((_, index) => cellOf(row[index])),
      ]),
    ]);
  });
}

/** What the import makes of a cell that Python has written. */
function importedValue(value: Value | undefined, { type }: Column, dialect: Dialect, empty: Empty): Row[number] {
  if (cellOf(value) !== '') return value;
  if (type === 'string' && (quotesAll(dialect) || empty === 'string')) return '';
  return empty === 'null' ? null : undefined;
}

async function expectImportable(random: Random, tables: TableApp): Promise<void> {
  const files = dialects.map((dialect) => {
    const hasSpaces = quotesAll(dialect);
    const generator = new TableGenerator(random, { hasSpaces, hasGaps: true, hasEmptyTexts: true });
    const { columns } = generator;
    const rows = generator.rows(documentCount);
    const hasHeader = random(3) > 0;
    // Booleans and values that are missing are those of Python.
    const cells = rows.map((row) =>
      columns.map((_, index) => (typeof row[index] === 'boolean' ? row[index] : cellOf(row[index]) || null)),
    );
    const table = [...(hasHeader ? [columns.map(pathOf)] : []), ...cells];
    return {
      dialect,
      columns,
      rows,
      hasHeader,
      table,
      empty: pick(random, empties),
      encoding: pick(random, encodings),
    };
  });
  await withFolder(async (folder) => {
    const jobs = files.map(({ dialect, encoding, table }) => ({ write: dialect, dialect, encoding, table }));
    await runJobs(folder, jobs);
    for (const { dialect, columns, rows, hasHeader, empty } of files) {
      const names = columns.map(pathOf);
      const options = { separator: separators[dialect], types: typesOf(columns), empty };
      const bytes = await readFile(join(folder, dialect));
      await tables.import(dialect, bytes, hasHeader ? options : { ...options, columns: names });
      const expected = rows.map((row) =>
        columns.map((column, index) => importedValue(row[index], column, dialect, empty)),
      );
      const told = { dialect, empty, hasHeader };
      expect({ told, lines: await tables.export(dialect) }).toEqual({ told, lines: linesOf(columns, expected) });
    }
  });
}

/** Python makes no difference between an empty text and none: a table has one or the other. */
const copies = [
  { hasGaps: true, hasEmptyTexts: false, empty: 'missing', dialects: dialects.filter((each) => !quotesAll(each)) },
  { hasGaps: false, hasEmptyTexts: true, empty: 'string', dialects },
] as const;

async function expectCopied(random: Random, tables: TableApp): Promise<void> {
  for (const [index, copy] of copies.entries()) {
    const dialect = pick(random, copy.dialects);
    const { columns, rows, table } = await storeTable(random, tables, `of${index}`, {
      ...copy,
      hasSpaces: quotesAll(dialect),
    });
    await withFolder(async (folder) => {
      await writeFile(join(folder, 'read'), table);
      await runJobs(folder, [{ read: 'read', write: 'written', dialect, encoding: pick(random, encodings) }]);
      const options = { separator: separators[dialect], types: typesOf(columns), empty: copy.empty };
      await tables.import(`copy${index}`, await readFile(join(folder, 'written')), options);
    });
    await expectSame(tables, `copy${index}`, { dialect, lines: linesOf(columns, rows), table });
  }
}

async function expectRestored(random: Random, tables: TableApp): Promise<void> {
  const kind = { hasGaps: true, hasEmptyTexts: true, hasSpaces: true };
  const { columns, rows, table } = await storeTable(random, tables, 'original', kind);
  await tables.import('copy', Buffer.from(table), { types: typesOf(columns) });
  await expectSame(tables, 'copy', { dialect: undefined, lines: linesOf(columns, rows), table });
}

/** Stores documents, and returns them without nulls, with their export. */
async function storeTable(random: Random, tables: TableApp, collection: string, kind: TableOptions) {
  const generator = new TableGenerator(random, kind);
  const { columns } = generator;
  const rows = generator.rows(documentCount);
  await tables.store(collection, columns, rows);
  const table = await tables.export(collection, { format: 'csv' });
  return { columns, rows: rows.map((row) => row.map((value) => value ?? undefined)), table };
}

async function expectSame(
  tables: TableApp,
  collection: string,
  expected: { dialect: Dialect | undefined; lines: string; table: string },
): Promise<void> {
  const [lines, table] = [await tables.export(collection), await tables.export(collection, { format: 'csv' })];
  expect({ dialect: expected.dialect, lines, table }).toEqual(expected);
}
