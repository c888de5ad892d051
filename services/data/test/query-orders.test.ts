import { findApp } from '../src/catalog/app';
import { findCollection } from '../src/catalog/collection';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import type { Fixture, Page, TestApp } from './support/query-fixture';
import { filterGenerator, nameOf, type Filter, type Term } from './support/query-generator';
import { follow, holds, sortOrder } from './support/query-reference';
import { makeTwins, startTwinsFixture } from './support/query-twins';
import { dateFields, dates, documentValues } from './support/query-values';
import { seededRandom } from './support/random';
import { isRefused } from './support/refused-operands';

const orderCount = size({ run: 30, long: 3_000 });

const everything = (): Filter => ({ find: {}, meaning: { all: [] } });

/** A filter that is not refused. */
function accepted(draw: () => Filter): Filter {
  let filter = draw();
  while (isRefused(filter.meaning)) filter = draw();
  return filter;
}

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startTwinsFixture();
});
afterAll(() => fixture.stop());

describe.each(partsOf('query orders', orderCount))('$cases orders (seed $seed)', ({ seed, cases }) => {
  const values = documentValues(seededRandom(seed));
  const { random, pick } = values;
  const { filter, fixing, sort: makeSort } = filterGenerator(values);
  const documents = values.documents(400);
  let app: TestApp;
  beforeAll(async () => {
    app = await makeTwins(fixture, documents, random);
  });

  test('a walk by cursor gives every untouched record once, in order, whatever is written meanwhile', async () => {
    for (let round = 0; round < cases / 3; round += 1) {
      const sort = makeSort(round);
      const { find } = accepted(pick([filter, fixing, fixing, everything]));
      const names = sort.map(nameOf);
      for (const name of ['plain', 'keyed']) {
        const body = { root: `${app.appId}::${name}`, find, sort: names };
        const whole = idsOf(await app.list({ ...body, limit: 1_000 }));
        const walked: unknown[] = [];
        const added = new Set<unknown>();
        let cursor: unknown;
        for (let pages = 0; pages <= whole.length; pages += 1) {
          const page = await app.list({ ...body, limit: 1 + random(50), ...(cursor === undefined ? {} : { cursor }) });
          expect([page.page, page.total === null]).toEqual([cursor === undefined ? 1 : null, false]);
          walked.push(...idsOf(page));
          cursor = page['next_cursor'];
          if (cursor === undefined) break;
          if (random(4) > 0) continue;
          const document = { ...values.document(0), d: pick(dates.slice(0, 3)), id: `new${round}-${pages}-${name}` };
          added.add(document.id);
          await app.store(name, [JSON.stringify(document)]);
        }
        const untouched = walked.filter((id) => !added.has(id));
        expect({ name, names, find, walked: untouched }).toEqual({ name, names, find, walked: whole });
        for (const id of added) await fixture.pool.query(await deletion(app, name), [id]);
      }
    }
  });

  test('every order is the one of the contract, with and without indexes, page by page', async () => {
    for (let round = 0; round < cases; round += 1) {
      const sort = makeSort(round);
      const { find, meaning } = accepted(pick([filter, fixing, everything]));
      const matching = documents.filter((document) => holds(meaning, document, dateFields));
      const [limit, offset] = [1 + random(60), random(3) === 0 ? random(420) : 0];
      for (const name of ['plain', 'keyed']) {
        const names = sort.map(nameOf);
        const body = { root: `${app.appId}::${name}`, find, sort: names };
        const whole = await app.list({ ...body, limit: 1_000 });
        expect(whole.records).toHaveLength(matching.length);
        for (let at = 1; at < whole.records.length; at += 1) {
          expect({ name, names, order: orderOf(sort, whole.records[at - 1]!, whole.records[at]!) }).toEqual({
            name,
            names,
            order: 'right',
          });
        }
        const page = await app.list({ ...body, limit, offset });
        expect({ name, names, limit, offset, ids: idsOf(page) }).toEqual({
          name,
          names,
          limit,
          offset,
          ids: idsOf(whole).slice(offset, offset + limit),
        });
        expect(page.total).toBe(matching.length);
      }
    }
  });
});

/** Takes a document away for good, which no call does: so each round begins with the same documents. */
async function deletion(app: TestApp, name: string): Promise<string> {
  const handle = (await findCollection(fixture.pool, await findApp(fixture.pool, app.appId), name))!;
  return `with gone as (delete from a_${handle.appNumber}.c_${handle.number} where id = $1 returning id)
    update collection set row_count = row_count - (select count(*) from gone) where number = ${handle.number}`;
}

const idsOf = (page: Page): unknown[] => page.records.map(({ id }) => id);

function orderOf(sort: readonly Term[], a: unknown, b: unknown): 'right' | 'wrong' {
  for (const { path, descending } of sort) {
    const steps = path.split('.');
    const order = sortOrder(follow(a, steps), follow(b, steps), descending, dateFields.has(path));
    if (order === undefined || order < 0) return 'right';
    if (order > 0) return 'wrong';
  }
  const ids = [a, b].map((record) => Buffer.from((record as { id: string }).id));
  const order = Buffer.compare(ids[0]!, ids[1]!);
  return order < 0 !== sort.at(-1)!.descending ? 'right' : 'wrong';
}
