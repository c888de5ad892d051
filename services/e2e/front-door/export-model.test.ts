import { createHash } from 'node:crypto';
import { partsOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { filterGenerator, type Filter } from '../../data/test/support/query-generator';
import { holds } from '../../data/test/support/query-reference';
import { documentValues, type Values } from '../../data/test/support/query-values';
import { seededRandom } from '../../data/test/support/random';
import { CommitLog, type LoggedVersion } from '../support/commit-log';
import { DocumentWriters } from '../support/document-writers';
import { readExport, wholeLines, wholeRecords, type Reading } from '../support/export-client';
import { newApp, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';

/**
 * Exports in every format, at any height, with filters of every kind, are read from two gateways with a data service
 * each while writers change and erase a thousand documents a second. Each is cut off again and again, and has to be the
 * fold of the commits up to its height.
 */
const exportCount = size({ run: 18, long: 3_000 });
/** Exports of one app, whose commits they are compared with at the end. */
const exportsOfRound = 18;
const readers = 2;
/** More than two pages. */
const firstDocuments = 4_500;
/** Heights before the last one, among which exports choose theirs. */
const recentHeights = 500;

let granaries: Granary[] = [];
beforeAll(async () => {
  const one = await startGranary('direct');
  granaries = [one, await startGranary('wire', { databaseUrls: { data: one.databaseUrls.data } })];
});
afterAll(async () => {
  for (const granary of granaries) await granary.stop();
});

const formats = ['ndjson', 'json', 'csv'] as const;
const documentColumns = ['id', 'a', 'b', 'n', 'd', 'e', 's', 'large', 'deleted'];
const headColumns = ['id', 'version', 'height', 'deleted'];

interface ExportChoice {
  format: (typeof formats)[number];
  filter: Filter | undefined;
  hasHistory: boolean;
  hasDeleted: boolean;
  /** Undefined: the last one. */
  height: number | undefined;
}

/** What an export shows of a version: a line, or the cells of a record as JSON text. */
interface Shown {
  id: string;
  version: number | undefined;
  text: string;
}

interface Exported extends ExportChoice {
  height: number;
  /** The documents that were gone before it began. */
  goneBefore: ReadonlySet<string>;
  shown: Shown[];
}

const columnsOf = ({ hasHistory }: ExportChoice): string[] =>
  hasHistory ? [...headColumns, ...documentColumns.map((name) => `document.${name}`)] : documentColumns;

/** The versions in a part of an export, as far as they are whole. */
function shownIn(choice: ExportChoice, text: string): Shown[] {
  if (choice.format === 'csv') return recordsIn(choice, text);
  const lines = wholeLines(text).filter((line) => choice.format === 'ndjson' || !/^[[\]]+$/.test(line));
  return lines.map((whole) => {
    const line = choice.format === 'json' ? whole.replace(/,$/, '') : whole;
    const { id, version } = JSON.parse(line) as { id: string; version?: number };
    // The time of a version is a bit before that of its commit.
    return { id, version, text: version === undefined ? line : line.replace(/,"at":"[\d-]+T[\d:.]+Z"/, '') };
  });
}

function recordsIn(choice: ExportChoice, text: string): Shown[] {
  const [names, ...records] = wholeRecords(text);
  if (names) expect(names).toEqual(columnsOf(choice));
  return records.map((cells) => ({
    id: cells[0]!,
    version: choice.hasHistory ? Number(cells[1]) : undefined,
    text: recordText(cells),
  }));
}

/** Only objects begin with a brace here. Members that are named by digits come first once an object is parsed. */
const recordText = (cells: ReadonlyArray<string | null>): string =>
  JSON.stringify(cells.map((cell) => (cell?.startsWith('{') ? JSON.stringify(JSON.parse(cell)) : cell)));

function cellOf(value: unknown): string | null {
  if (value === undefined || value === null) return null;
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** What an export has to show of a version whose text is known. */
function expectedText({ format, hasHistory }: ExportChoice, one: LoggedVersion): string {
  const { id, version, height, document } = one;
  const head = { id, version, height, deleted: isDeleted(one) };
  if (format === 'csv') {
    const cells = documentColumns.map((name) => cellOf(document![name]));
    return recordText(hasHistory ? [...Object.values(head).map(cellOf), ...cells] : cells);
  }
  return hasHistory ? `${JSON.stringify(head).slice(0, -1)},"document":${one.text}}` : one.text!;
}

const isDeleted = ({ document }: LoggedVersion): boolean => document?.['deleted'] === true;

class ExportModel {
  readonly writers: DocumentWriters;
  checked = 0;
  cuts = 0;
  /** Exports during which something was written. */
  overtaken = 0;
  private readonly log: CommitLog;
  private readonly filters;
  private exports: Exported[] = [];

  constructor(
    private readonly values: Values,
    private readonly app: TestApp,
  ) {
    this.writers = new DocumentWriters(
      app,
      granaries.map(({ url }) => url),
      'films',
      values,
    );
    this.log = new CommitLog(app);
    this.filters = filterGenerator(values, false);
  }

  /** Reads so many exports, as many at a time as a gateway serves of one app. */
  async export(count: number): Promise<void> {
    let begun = 0;
    const read = async () => {
      while (begun < count) await this.exportOne(formats[(begun += 1) % formats.length]!);
    };
    await Promise.all(Array.from({ length: readers }, read));
  }

  private async exportOne(format: ExportChoice['format']): Promise<void> {
    const { random } = this.values;
    const filter = random(2) === 0 ? undefined : this.filters.filter();
    // Data sets and countries are not part of this model.
    if (filter && /inDataset|inCountry/.test(JSON.stringify(filter.find))) return this.exportOne(format);
    const hasHistory = random(3) === 0;
    const hasDeleted = !hasHistory && random(2) === 0;
    const before = this.writers.height;
    const height = random(2) === 0 ? undefined : before - random(Math.min(recentHeights, before));
    const goneBefore = new Set(this.writers.gone);
    const choice = { format, filter, hasHistory, hasDeleted, height };
    const exported = await this.readWithCuts(choice);
    // What was acknowledged before is part of the last height.
    if (height === undefined) expect(exported.height).toBeGreaterThanOrEqual(before);
    if (this.writers.height > exported.height) this.overtaken += 1;
    this.exports.push({ ...choice, ...exported, goneBefore });
  }

  private async readWithCuts(choice: ExportChoice): Promise<Pick<Exported, 'height' | 'shown'>> {
    const { random, pick } = this.values;
    const shown: Shown[] = [];
    let { height } = choice;
    for (;;) {
      const path = this.pathOf({ ...choice, height }, shown.at(-1));
      const reading: Reading = {
        // As often short as long, since many filters let little through.
        bytesMax: random(2) === 0 ? random(2 ** (1 + random(19))) : Infinity,
        takesGzip: random(3) === 0,
        ...(random(3) === 0 && { pauseMs: random(10) }),
      };
      const part = await readExport({ url: pick(granaries).url, path, key: this.app.key }, reading);
      expect([part.status, path, part.status === 200 ? '' : part.text]).toEqual([200, path, '']);
      const told = Number(part.headers['x-granary-height']);
      if (height !== undefined) expect(told).toBe(height);
      height = told;
      const more = shownIn(choice, part.text);
      shown.push(...more);
      if (part.isWhole && choice.format === 'json') expect(JSON.parse(part.text)).toHaveLength(more.length);
      if (part.isWhole) return { height, shown };
      this.cuts += 1;
    }
  }

  private pathOf(choice: ExportChoice, last: Shown | undefined): string {
    const { format, filter, hasHistory, hasDeleted, height } = choice;
    const query = new URLSearchParams({
      format,
      ...(filter && { find: JSON.stringify(filter.find) }),
      ...(hasHistory && { history: 'true' }),
      ...(hasDeleted && { deleted: 'include' }),
      ...(format === 'csv' && { columns: columnsOf(choice).join(',') }),
      ...(height !== undefined && { at: String(height) }),
      ...(last && { after: last.id, ...(hasHistory && { after_version: String(last.version) }) }),
    });
    return `/api/apps/${this.app.appId}/collections/films/export?${query.toString()}`;
  }

  /** To be called when no write is under way. */
  async check(): Promise<void> {
    await this.log.read();
    this.writers.expectLogged(this.log);
    for (const one of this.exports.splice(0)) {
      const { shown, goneBefore, filter, ...request } = one;
      for (const { id } of shown) expect(goneBefore).not.toContain(id);
      const told = { ...request, find: filter?.find };
      const texts = shown.map(({ text }) => text);
      const expected = this.expected(one);
      const place = expected.findIndex((text, index) => text !== texts[index]);
      expect({ told, count: texts.length, place, text: texts[place] }).toEqual({
        told,
        count: expected.length,
        place: -1,
        text: expected[place],
      });
      this.checked += 1;
    }
  }

  /** The fold of the commits up to the height. A document that was erased meanwhile may be missing. */
  private expected(one: Exported): string[] {
    const { height, filter, hasHistory, hasDeleted, shown } = one;
    const keyOf = ({ id, version }: Pick<Shown, 'id' | 'version'>) => (hasHistory ? `${version}/${id}` : id);
    const texts = new Map(shown.map((each) => [keyOf(each), each.text]));
    return this.log.fold(height, hasHistory).flatMap((version) => {
      const text = texts.get(keyOf(version));
      if (this.writers.erased.has(version.id)) {
        if (text === undefined) return [];
        // Its hash is in the chain for ever.
        if (version.text === undefined) return isHashed(one, text, version) ? [text] : [version.sha256];
      }
      const isShown = hasHistory || hasDeleted || !isDeleted(version);
      if (!isShown || (filter && !holds(filter.meaning, version.document!, new Set()))) return [];
      return [expectedText(one, version)];
    });
  }
}

/** Whether this is what an export shows of an erased text; of one in cells the hash is not known. */
function isHashed({ format, hasHistory }: ExportChoice, text: string, { sha256 }: LoggedVersion): boolean {
  if (format === 'csv') return true;
  const stored = hasHistory ? text.slice(text.indexOf(',"document":') + 12, -1) : text;
  return createHash('sha256').update(stored).digest('hex') === sha256;
}

test.each(partsOf('exports', 1))(
  'an export is the fold of the commits up to its height, whatever is written, erased and cut off meanwhile (seed $seed)',
  async ({ seed }) => {
    const values = documentValues(seededRandom(seed));
    const totals = { checked: 0, cuts: 0, overtaken: 0 };
    while (totals.checked < exportCount) {
      const model = new ExportModel(values, await newApp(granaries[0]!));
      await model.writers.begin(firstDocuments);
      await model.writers.beside(() => model.export(exportsOfRound));
      await model.check();
      totals.checked += model.checked;
      totals.cuts += model.cuts;
      totals.overtaken += model.overtaken;
    }
    expect(totals.cuts).toBeGreaterThan(exportCount / 10);
    expect(totals.overtaken).toBeGreaterThan(exportCount / 2);
  },
  sizedLimitMs(limitMs(120_000)),
);
