import { partsOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { filterGenerator, type Filter } from '../../data/test/support/query-generator';
import { holds } from '../../data/test/support/query-reference';
import { documentValues } from '../../data/test/support/query-values';
import { seededRandom, type Random } from '../../data/test/support/random';
import { readExport, wholeLines } from '../support/export-client';
import { newApp, send, type Granary, type StoreAnswer, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { limitMs } from '@granary/testing/speed';

/**
 * Exports at any height, with filters of every kind, are read from two gateways with a data service each while writers
 * change and erase documents. Each is cut off again and again, and has to be what the writes up to its height give.
 */
const exportCount = size({ run: 60, long: 3_000 });
/** More than two pages. */
const firstDocuments = 4_500;

let granaries: Granary[] = [];
beforeAll(async () => {
  const one = await startGranary('direct');
  granaries = [one, await startGranary('wire', { databaseUrls: { data: one.databaseUrls.data } })];
});
afterAll(async () => {
  for (const granary of granaries) await granary.stop();
});

interface Written {
  height: number;
  place: number;
  id: string;
  document: Record<string, unknown>;
}

interface Exported {
  height: number;
  filter: Filter | undefined;
  hasHistory: boolean;
  hasDeleted: boolean;
  /** The documents that were gone before it began. */
  goneBefore: ReadonlySet<string>;
  lines: string[];
}

class ExportModel {
  readonly written: Written[] = [];
  /** Ids that are erased, or are being erased. */
  private readonly erased = new Set<string>();
  private readonly gone = new Set<string>();
  private readonly exports: Exported[] = [];
  checked = 0;
  /** Ids that are being written: nobody could say whether that is before or after an erasure. */
  private readonly underWay = new Set<string>();
  cuts = 0;
  private readonly values;
  private readonly filters;
  private ids = 0;

  constructor(
    private readonly random: Random,
    private readonly app: TestApp,
  ) {
    this.values = documentValues(random);
    this.filters = filterGenerator(this.values, false);
  }

  private get url(): string {
    return granaries[this.random(granaries.length)]!.url;
  }

  async store(count: number): Promise<void> {
    const data = Array.from({ length: count }, () => this.document());
    for (const { id } of data) this.underWay.add(id as string);
    const body = { root: `${this.app.appId}::films`, data };
    const answer = await send<StoreAnswer>(this.url, 'POST', '/store', { key: this.app.key, body });
    expect(answer.status).toBe(202);
    for (const [place, { id, celestia_height: height }] of answer.body.results.entries()) {
      this.written.push({ height, place, id, document: data[place]! });
      this.underWay.delete(id);
    }
  }

  private document(): Record<string, unknown> {
    const isNew = this.ids < firstDocuments || this.random(3) === 0;
    const id = this.idOf(isNew ? (this.ids += 1) : this.random(this.ids));
    // No erased id comes back, for nobody would know any more which versions were before the erasure.
    if (this.erased.has(id)) return this.document();
    const document = { ...this.values.document(0), id };
    return this.random(6) === 0 ? { ...document, deleted: true } : document;
  }

  /** Ids whose order is neither that of their numbers nor that of their letters in a language. */
  private idOf(number: number): string {
    return `${['é', 'Z', 'a', '€'][number % 4]!}${number}`;
  }

  async erase(): Promise<void> {
    const id = this.idOf(this.random(this.ids));
    if (this.erased.has(id) || this.underWay.has(id)) return;
    this.erased.add(id);
    const path = `/api/apps/${this.app.appId}/collections/films/documents/${encodeURIComponent(id)}?erase=true`;
    const { status } = await send(this.url, 'DELETE', path, { key: this.app.key });
    expect([200, 404]).toContain(status);
    this.gone.add(id);
  }

  async export(): Promise<void> {
    const filter = this.random(3) === 0 ? undefined : this.filters.filter();
    const hasHistory = this.random(3) === 0;
    const hasDeleted = !hasHistory && this.random(2) === 0;
    // Data sets and countries are not part of this model.
    if (filter && /inDataset|inCountry/.test(JSON.stringify(filter.find))) return;
    const heights = this.written.map(({ height }) => height);
    const chosenHeight = this.random(2) === 0 ? undefined : heights[this.random(heights.length)];
    const parameters = [
      ...(filter ? [`find=${encodeURIComponent(JSON.stringify(filter.find))}`] : []),
      ...(hasHistory ? ['history=true'] : []),
      ...(hasDeleted ? ['deleted=include'] : []),
    ];
    const goneBefore = new Set(this.gone);
    const { height, lines } = await this.readWithCuts(parameters, chosenHeight, hasHistory);
    this.exports.push({ height, filter, hasHistory, hasDeleted, goneBefore, lines });
  }

  private async readWithCuts(
    parameters: readonly string[],
    chosenHeight: number | undefined,
    hasHistory: boolean,
  ): Promise<{ height: number; lines: string[] }> {
    const lines: string[] = [];
    let height = chosenHeight;
    for (;;) {
      const query = [...parameters, ...(height === undefined ? [] : [`at=${height}`]), ...behind(lines, hasHistory)];
      const path = `/api/apps/${this.app.appId}/collections/films/export?${query.join('&')}`;
      // As often short as long, since many filters let little through.
      const bytesMax = this.random(3) === 0 ? this.random(2 ** (1 + this.random(19))) : Infinity;
      const part = await readExport({ url: this.url, path, key: this.app.key }, bytesMax);
      expect([part.status, path, part.status === 200 ? '' : part.text]).toEqual([200, path, '']);
      const shown = Number(part.headers['x-granary-height']);
      if (height !== undefined) expect(shown).toBe(height);
      height = shown;
      lines.push(...wholeLines(part.text));
      if (part.isWhole) return { height, lines };
      this.cuts += 1;
    }
  }

  /** The result of the writes up to the height, without erased documents. */
  expected({ height, filter, hasHistory, hasDeleted }: Exported): unknown[] {
    const versions = new Map<string, Written[]>();
    for (const one of this.written) {
      if (one.height > height || this.erased.has(one.id)) continue;
      versions.set(one.id, [...(versions.get(one.id) ?? []), one]);
    }
    const matches = ({ document }: Written) => !filter || holds(filter.meaning, document, new Set());
    const isDeleted = ({ document }: Written) => document['deleted'] === true;
    return [...versions]
      .sort(([one], [other]) => Buffer.compare(Buffer.from(one), Buffer.from(other)))
      .flatMap(([, list]): unknown[] => {
        if (hasHistory) {
          const all = list.map((one, index) => ({ one, version: index + 1, deleted: isDeleted(one) }));
          return all
            .filter(({ one }) => matches(one))
            .map(({ one: { id, height: committed, document }, ...head }) => ({
              ...head,
              id,
              height: committed,
              document,
            }));
        }
        const last = list.at(-1)!;
        return matches(last) && (hasDeleted || !isDeleted(last)) ? [last.document] : [];
      });
  }

  /** To be called when no write is under way, since one that is would be unknown. */
  check(): void {
    this.written.sort((one, other) => one.height - other.height || one.place - other.place);
    for (const one of this.exports.splice(0)) {
      const shown = one.lines.map((line) => JSON.parse(line) as { id: string; at?: string });
      for (const { id } of shown) expect(one.goneBefore).not.toContain(id);
      const documents = shown.filter(({ id }) => !this.erased.has(id)).map((line) => ({ ...line, at: undefined }));
      const { height, hasHistory, hasDeleted, filter } = one;
      const request = { height, hasHistory, hasDeleted, find: filter?.find };
      expect({ request, documents }).toEqual({ request, documents: this.expected(one) });
      this.checked += 1;
    }
  }
}

/** The parameters by which an export goes on behind its last whole line. */
function behind(lines: readonly string[], hasHistory: boolean): string[] {
  const last = lines.at(-1);
  if (last === undefined) return [];
  const { id, version } = JSON.parse(last) as { id: string; version?: number };
  return [`after=${encodeURIComponent(id)}`, ...(hasHistory ? [`after_version=${version}`] : [])];
}

test.each(partsOf('exports', 1))(
  'an export is what the writes up to its height add up to, whatever is written, erased and cut off meanwhile (seed $seed)',
  async ({ seed }) => {
    const random = seededRandom(seed);
    const model = new ExportModel(random, await newApp(granaries[0]!));
    for (let count = 0; count < firstDocuments; count += 900) await model.store(900);
    while (model.checked < exportCount) {
      await Promise.all([
        model.store(1 + random(30)),
        model.store(1 + random(3)),
        model.erase(),
        model.export(),
        model.export(),
      ]);
      model.check();
    }
    expect(model.cuts).toBeGreaterThan(exportCount / 10);
  },
  sizedLimitMs(limitMs(120_000)),
);
