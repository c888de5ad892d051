import type { Connection } from '@granary/shared/postgres/pool';
import { readJson } from '@granary/shared/json/value';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { findApp } from '../src/catalog/app';
import { findCollections, type CollectionRef } from '../src/catalog/collection';
import { findReferences, type FoundReferences } from '../src/catalog/references';
import { parseFind } from '../src/query/language/filter';
import { withReferences } from '../src/query/language/references';
import { planPage, type PagePlan } from '../src/query/plan/page-plan';
import type { ScanStep } from '../src/query/plan/scan';
import { documentsRelation } from '../src/query/plan/relation';
import type { Fixture, TestApp } from './support/query-fixture';
import { filterGenerator, type Filter, type FilterGenerator, type Term } from './support/query-generator';
import { datasets, follow, holds, sortOrder } from './support/query-reference';
import { makeTwins, startTwinsFixture } from './support/query-twins';
import { dateFields, documentValues } from './support/query-values';
import { seededRandom, type Random } from './support/random';
import { idsOfPages } from './support/statement-batch';

/*
 * Most of the filters of a run: their statements, which the plan of the page makes and Postgres executes, many in one
 * round trip. That requests give these statements, by each entrance, is proved in query-entrances.test.ts.
 */

const filterCount = size({ run: 4_325, long: 900_000 });
const documentCount = 60;
/** The steps of a scan: each gives all rows. */
const scanSteps: readonly ScanStep[] = [{ kind: 'whole' }, { kind: 'ordered' }, { kind: 'head', rows: documentCount }];
/** Filters over one set of documents, and in one round trip. */
const [roundsOfSet, roundsOfBatch] = [12_000, 40];

let fixture: Fixture;
let connection: Connection;
beforeAll(async () => {
  fixture = await startTwinsFixture();
  connection = await fixture.pool.connect();
  // Where sequential scans are cheap they are all that Postgres would use for a few documents.
  await connection.query('set jit = off');
});
afterAll(async () => {
  connection.release();
  await fixture.stop();
});

interface Case extends Filter {
  sort: readonly Term[];
}

interface Sources {
  collections: readonly CollectionRef[];
  references: FoundReferences;
}

test.each(partsOf('query filters', filterCount))(
  '$cases filters find exactly the records that their meanings hold for, with and without indexes (seed $seed)',
  async ({ seed, cases: count }) => {
    const random = seededRandom(seed);
    const values = documentValues(random);
    const generator = filterGenerator(values);
    for (let done = 0; done < count; done += roundsOfSet) {
      const documents = values.documents(documentCount);
      const app = await makeTwins(fixture, documents, random);
      const sources = await sourcesOf(app);
      const end = Math.min(done + roundsOfSet, count);
      for (let at = done; at < end; at += roundsOfBatch) {
        const cases = Array.from({ length: Math.min(roundsOfBatch, end - at) }, (_, round) =>
          makeCase(generator, random, at + round),
        );
        await connection.query(`set enable_seqscan = ${(at / roundsOfBatch) % 2 === 0 ? 'on' : 'off'}`);
        const reading = pagesOf(sources, cases);
        const expected = cases.map(({ meaning }) => documents.filter((one) => holds(meaning, one, dateFields)));
        const found = await reading;
        cases.forEach((one, number) => {
          found.forEach((pages, which) => expectPage(which, one, pages[number]!, expected[number]!));
        });
      }
    }
  },
);

function makeCase(generator: FilterGenerator, random: Random, round: number): Case {
  const { find, meaning } = random(8) === 0 ? generator.fixing() : generator.filter();
  return { find, meaning, sort: random(4) === 0 ? generator.sort(round) : [] };
}

async function sourcesOf(app: TestApp): Promise<Sources> {
  const collections = await findCollections(fixture.pool, await findApp(fixture.pool, app.appId), ['plain', 'keyed']);
  const found = await findReferences(fixture.pool, app.appId, Object.keys(datasets));
  return { collections: [...collections].sort((a, b) => Number(a.number - b.number)), references: found };
}

/** The ids of the pages of some filters, in the collection without indexes and in that with them. */
async function pagesOf({ collections, references }: Sources, cases: readonly Case[]): Promise<string[][][]> {
  const pages: string[][][] = [];
  const conditions = cases.map(({ find }) => {
    const text = JSON.stringify(find);
    return withReferences(parseFind(readJson(Buffer.from(text), { maxDepth: 64 })), references);
  });
  for (const collection of collections) {
    const relation = documentsRelation(collection, { includeHistory: false, includeDeleted: true });
    const plans = cases.map(({ sort }, at): PagePlan => {
      const terms = sort.map(({ path, descending }) => ({ path: path.split('.'), descending }));
      const plan = planPage(relation, { find: conditions[at]!, sort: terms, limit: documentCount + 1, offset: 0 });
      return { ...plan, scan: plan.scan && scanSteps[terms.length === 0 ? at % 3 : 0] };
    });
    pages.push(await idsOfPages(connection, plans));
  }
  return pages;
}

function expectPage(
  which: number,
  { find, sort }: Case,
  ids: readonly string[],
  expected: ReadonlyArray<Record<string, unknown>>,
): void {
  const byId = new Map(expected.map((document) => [document['id'] as string, document]));
  const isSame = ids.length === byId.size && ids.every((id) => byId.has(id));
  if (!isSame) {
    const difference = {
      extra: ids.filter((id) => !byId.has(id)),
      lacking: [...byId.keys()].filter((id) => !ids.includes(id)),
    };
    expect({ which, find: JSON.stringify(find), ...difference }).toEqual({ which, extra: [], lacking: [] });
  }
  for (let at = 1; at < ids.length; at += 1) {
    const [before, after] = [byId.get(ids[at - 1]!)!, byId.get(ids[at]!)!];
    if (!isInOrder(sort, before, after)) expect({ which, find, sort, before, after }).toBe('in order');
  }
}

function isInOrder(sort: readonly Term[], a: Record<string, unknown>, b: Record<string, unknown>): boolean {
  for (const { path, descending } of sort) {
    const steps = path.split('.');
    const order = sortOrder(follow(a, steps), follow(b, steps), descending, dateFields.has(path));
    if (order === undefined) return true;
    if (order !== 0) return order < 0;
  }
  const order = Buffer.compare(Buffer.from(a['id'] as string), Buffer.from(b['id'] as string));
  return order < 0 !== (sort.at(-1)?.descending ?? false);
}
