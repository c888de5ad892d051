import { readJson } from '@granary/shared/json/value';
import { sql } from '@granary/shared/postgres/sql';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { findApp } from '../src/catalog/app';
import { findCollection, findCollections, type CollectionRef } from '../src/catalog/collection';
import { parseFind, parseQuery } from '../src/query/language/filter';
import { isOperatorName } from '../src/query/language/operators';
import { withReferences } from '../src/query/language/references';
import { planJoins } from '../src/query/plan/join-plan';
import { planPage } from '../src/query/plan/page-plan';
import { documentsRelation } from '../src/query/plan/relation';
import { indexRead } from '../src/query/sql/index-scan-sql';
import { joinedPage } from '../src/query/sql/join-sql';
import { pageStatement } from '../src/query/sql/page-sql';
import { parseViewQuery } from '../src/views/language/view-query';
import { planView } from '../src/views/plan/view-plan';
import { viewRows } from '../src/views/sql/view-sql';
import { comparisons, joinGenerator, paths as joinPaths, targetsOf } from './support/join-generator';
import { planByPool } from './support/plans';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { filterGenerator } from './support/query-generator';
import { documentValues } from './support/query-values';
import { seededRandom, type Random } from './support/random';

/*
 * In the place of each text and number that a caller chooses stands one that no code of the service has. Where the text
 * of a statement contains it, a caller writes SQL.
 */

const filterCount = size({ run: 4_500, long: 900_000 });
const joinCount = size({ run: 500, long: 100_000 });

const canaries = ['canary0', 'canary1', `canary2 '"; --`];
const canaryNumber = 4_815_162_342;
// In a key it is hexadecimal.
const isMarked = /canary|63616e617279|4815162342/i;

let fixture: Fixture;
let app: TestApp;
let collection: CollectionRef;
beforeAll(async () => {
  fixture = await startFixture();
  app = await fixture.newApp();
  await app.createCollection('c', { fields: { 'canary0.n': { type: 'date' } } });
  await app.createIndex('c', 'canary1');
  await app.createIndex('c', 'canary0.n');
  await app.createComposite('c', ['canary0', 'canary1']);
  await app.createFullText('c', 'canary1', 'english');
  collection = (await findCollection(fixture.pool, await findApp(fixture.pool, app.appId), 'c'))!;
});
afterAll(() => fixture.stop());

/**
 * What was seen: different texts, up to some thousands, those with what a caller wrote, and how many had it in values.
 */
class Texts {
  readonly seen = new Set<string>();
  readonly leaking: string[] = [];
  marked = 0;

  add({ text, values: parameters }: { text: string; values: readonly unknown[] }): void {
    if (this.seen.size < 5_000) this.seen.add(text);
    if (isMarked.test(text) || /\d\.\d+\.|::\d/.test(text)) this.leaking.push(text);
    if (isMarked.test(JSON.stringify(parameters.map(String)))) this.marked += 1;
  }
}

const table = { appNumber: 1n, tableNumber: 1n };
const references = { hasCountries: true, tables: new Map(canaries.map(() => ['canary0', table] as const)) };
const parsed = (value: unknown) => readJson(Buffer.from(JSON.stringify(value)), { maxDepth: 64 });

/** How many different texts so many cases make at least. */
const textsMin = (cases: number) => Math.min(cases / 5, 1_000);

test.each(partsOf('texts of filters', filterCount))(
  'none of $cases filters, nor orders, cursors and groups, has a text of its caller in its statement (seed $seed)',
  ({ seed, cases }) => {
    const values = documentValues(seededRandom(seed));
    const { random, pick } = values;
    const { filter } = filterGenerator(values);
    const { canary, inFilter } = new Canaries(random);
    const texts = new Texts();
    for (let round = 0; round < cases; round += 1) {
      const find = inFilter(filter().find) as Record<string, unknown>;
      const condition = withReferences(parseFind(parsed(find)), references);
      const options = { includeHistory: round % 5 === 0, includeDeleted: round % 2 === 0 };
      const source = documentsRelation(collection, options);
      const sort = [canary(), canary()].map((name) => ({ path: [name], descending: true }));
      const value = () => pick(['"canary"', '["canary"]', `${canaryNumber}`, null]);
      const after = round % 3 === 0 ? { values: [value(), value()], id: 'canary', version: '1' } : undefined;
      const request = { find: condition, sort: round % 4 === 0 ? [] : sort, limit: 10, offset: 0, after };
      const read = random(2) === 0 ? indexRead(planPage(source, request)) : undefined;
      texts.add(read ?? pageStatement(planByPool(source, request)).compile());
      if (round % 10 === 0) texts.add(groupsOf(find, canary));
    }
    // What is fixed by an equality needs no place in the order, and one with a key column no path.
    expect(texts.marked).toBeGreaterThan(cases * 0.9);
    expect(texts.seen.size).toBeGreaterThan(textsMin(cases));
    expect(texts.leaking).toEqual([]);
  },
);

/** The statement of the rows of a view with groups. */
function groupsOf(find: Record<string, unknown>, canary: () => string) {
  const query = {
    group_by: [canary()],
    sort_by: { canarySum: 'desc' },
    limit: canaryNumber % 1_000,
    aggregate: { canarySum: { $sum: canary() }, canaryCount: { $count_distinct: `${canary()}.${canary()}` } },
  };
  const { find: condition, ...view } = parseViewQuery(parsed({ ...query, find }), ['canary']);
  const resolved = { ...view, find: withReferences(condition, references) };
  return viewRows(planView(resolved, new Map([['canary', collection]]))).compile();
}

const logicals = new Set(['and', 'or', 'not', '$and', '$or', '$not', 'from', 'to']);

function operatorIn(key: string): string | undefined {
  const last = key.split('.').at(-1)!;
  return isOperatorName(last) && (last.startsWith('$') || key === last) ? last : undefined;
}

const ofJoins = [
  'resolve',
  'find',
  'select',
  'model',
  'many',
  'and',
  'or',
  'not',
  ...comparisons.map(([, name]) => name),
];

/** Operators whose operands are not any text: these keep their own. */
const keepsOperand = /^\$?(?:CIDR|cidr|inCountry|b64)$/;

/** Puts canaries in the place of what a caller chooses. */
class Canaries {
  constructor(private readonly random: Random) {}

  readonly canary = (): string => canaries[this.random(canaries.length)]!;

  /** The same filter with other names of fields and other operands. */
  readonly inFilter = (find: unknown, operator?: string): unknown => {
    if (operator !== undefined && keepsOperand.test(operator)) return find;
    if (typeof find === 'string') {
      return operator !== undefined && /inDataset$/.test(operator) ? 'canary0' : this.canary();
    }
    if (typeof find === 'number') return canaryNumber + this.random(3) / 10;
    if (Array.isArray(find)) return find.map((one) => this.inFilter(one, operator));
    if (typeof find !== 'object' || find === null) return find;
    return Object.fromEntries(
      Object.entries(find).map(([key, value]) => [
        this.keyInFilter(key),
        this.inFilter(value, operatorIn(key) ?? operator),
      ]),
    );
  };

  private keyInFilter(key: string): string {
    if (logicals.has(key)) return key;
    const steps = key.split('.');
    return steps
      .map((step, at) => (at === steps.length - 1 && operatorIn(key) ? step : step === 's' ? 'canary1' : this.canary()))
      .join('.');
  }

  /** The same joins with other operands, aliases and fields that they refer to. */
  readonly inJoins = (value: unknown): unknown => {
    if (typeof value === 'string') return value.replace(/^(\$data\.|\$parent\.)?.*$/s, `$1canary${this.random(3)}`);
    if (typeof value === 'number') return canaryNumber;
    if (Array.isArray(value)) return value.map(this.inJoins);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, member], at) => [
        // Joins have names of their own, or references would name them.
        ofJoins.includes(key) || joinPaths.includes(key) ? key : `canary_join${at}`,
        key === 'select' ? {} : this.inJoins(member),
      ]),
    );
  };
}

describe('joins', () => {
  let sources: CollectionRef[];
  beforeAll(async () => {
    const owner = await findApp(fixture.pool, app.appId);
    for (const name of ['plain', 'keyed']) await app.createCollection(name, { fields: { d: { type: 'date' } } });
    for (const field of ['a', 'b', 'd', 'n.x']) await app.createIndex('keyed', field);
    await app.createComposite('keyed', ['b', 'd', 'a']);
    sources = await findCollections(fixture.pool, owner, ['plain', 'keyed']);
  });

  test.each(partsOf('texts of joins', joinCount))(
    'none of $cases joins has a text of its caller in its statement (seed $seed)',
    ({ seed, cases }) => {
      const random = seededRandom(seed);
      const { pick, makeJoins } = joinGenerator(random);
      const { inJoins } = new Canaries(random);
      const texts = new Texts();
      for (let round = 0; round < cases; round += 1) {
        const { joins } = parseQuery(parsed(inJoins(makeJoins().sent)));
        if (joins.length === 0) continue;
        const options = { includeHistory: false, includeDeleted: round % 2 === 0 };
        const plans = planJoins(targetsOf(joins, () => ({ handle: pick(sources), options })));
        const source = documentsRelation(sources[0]!, options);
        texts.add(joinedPage(sql`select t.body from ${source.table}`, source, plans, 1_000).compile());
      }
      expect(texts.marked).toBeGreaterThan(cases / 2);
      expect(texts.seen.size).toBeGreaterThan(textsMin(cases));
      expect(texts.leaking).toEqual([]);
    },
  );
});
