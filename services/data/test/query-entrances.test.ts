import { newTicket } from '@granary/shared/ids';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { noIdempotency } from './support/data-service';
import type { Fixture, Page, TestApp } from './support/query-fixture';
import { filterGenerator, type Filter } from './support/query-generator';
import { holds, type Meaning } from './support/query-reference';
import { indexedFields, makeTwins, startTwinsFixture } from './support/query-twins';
import { dateFields, documentValues } from './support/query-values';
import { seededRandom } from './support/random';
import { isRefused } from './support/refused-operands';
import { urlFilters } from './support/url-filters';

/*
 * Filters as requests: what is between a request and the statement of its page is the same for all filters, so fewer of
 * them prove it than those of query-filters.test.ts.
 */

/** Filters of each entrance. */
const filterCount = size({ run: 120, long: 15_000 });

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startTwinsFixture();
});
afterAll(() => fixture.stop());

/** A filter that no value of a declared field can meet is refused, and nothing else is. */
async function expectRefused(reading: Promise<unknown>, request: object): Promise<void> {
  const outcome = await reading.then(
    () => 'answered',
    (error: { reason?: string }) => error.reason,
  );
  expect({ request, outcome }).toEqual({ request, outcome: 'INVALID_QUERY' });
}

function expectMatches(page: Page, expected: readonly unknown[], request: object): void {
  const found = page.records.map(({ id }) => id);
  const difference = {
    extra: found.filter((id) => !expected.includes(id)),
    lacking: expected.filter((id) => !found.includes(id)),
    total: page.total,
  };
  expect({ request, ...difference }).toEqual({ request, extra: [], lacking: [], total: expected.length });
}

describe.each(partsOf('query entrances', filterCount))(
  '$cases filters of each entrance (seed $seed)',
  ({ seed, cases }) => {
    const values = documentValues(seededRandom(seed));
    const { random, pick } = values;
    const generator = filterGenerator(values);
    const documents = values.documents(120);
    let app: TestApp;
    beforeAll(async () => {
      app = await makeTwins(fixture, documents, random);
    });

    const matching = (meaning: Meaning): unknown[] =>
      documents.filter((document) => holds(meaning, document, dateFields)).map(({ id }) => id);
    const anyFilter = (): Filter => (random(4) === 0 ? generator.fixing() : generator.filter());

    test('those of a list find what they mean, with and without indexes', async () => {
      for (let round = 0; round < cases; round += 1) {
        const { find, meaning } = anyFilter();
        for (const name of ['plain', 'keyed']) {
          const reading = app.list({ root: `${app.appId}::${name}`, find, select: ['id'], limit: 1_000 });
          if (isRefused(meaning)) await expectRefused(reading, { name, find });
          else expectMatches(await reading, matching(meaning), { name, find });
        }
      }
    });

    test('URLs with operators as suffixes find what they mean', async () => {
      const fields = [...indexedFields, 'id'];
      const make = urlFilters(values, generator, fields, new Set(['d', 'id']));
      for (let round = 0; round < cases; round += 1) {
        const filters = Array.from({ length: pick([1, 1, 1, 2, 3]) }, make);
        const distinct = filters.filter(({ name }, at) => filters.findIndex((other) => other.name === name) === at);
        const parameters = Object.fromEntries(distinct.map(({ name, text }) => [name, text]));
        const meaning = { all: distinct.map((filter) => filter.meaning) };
        const reading = app.read('readCollection', 'keyed', { ...parameters, select: 'id', limit: '1000' });
        if (isRefused(meaning)) await expectRefused(reading, parameters);
        else expectMatches(await reading, matching(meaning), parameters);
      }
    });

    test('those of predefined queries and their parameters find what they mean', async () => {
      const make = urlFilters(
        values,
        generator,
        ['a', 'b', 'n.x', 'd', 'gone', 'e', 'n.01', 'id'],
        new Set(['d', 'id']),
      );
      const executions = 5;
      for (let round = 0; round < cases; round += executions) {
        const base = anyFilter();
        const name = `query${round}`;
        const filters = Array.from({ length: executions }, make);
        const source = pick(['plain', 'keyed']);
        const fields = filters.map((filter) => filter.name);
        const creating = createQuery(app, name, source, base.find, fields);
        if (isRefused(base.meaning)) {
          await expectRefused(creating, base.find);
          continue;
        }
        await creating;
        for (const [at, { text, meaning }] of filters.entries()) {
          const reading = app.read('runQuery', name, { [`p${at}`]: text, limit: '1000' });
          const request = { source, base: base.find, filter: filters[at] };
          if (isRefused(meaning)) await expectRefused(reading, request);
          else expectMatches(await reading, matching({ all: [base.meaning, meaning] }), request);
        }
        await fixture.methods.deleteQuery({ appId: app.appId, name, idempotency: noIdempotency });
      }
    });

    test("those over views find what they mean among the rows that the views' filters mean", async () => {
      const overRows = filterGenerator(values, false);
      const reads = 10;
      for (let round = 0; round < cases; round += reads) {
        const own = random(4) === 0 ? { find: {}, meaning: { all: [] } as Meaning } : anyFilter();
        const creating = createView(app, `view${round}`, pick(['plain', 'keyed']), own.find);
        if (isRefused(own.meaning)) {
          await expectRefused(creating, own.find);
          continue;
        }
        const name = await creating;
        const rows = documents.filter((document) => holds(own.meaning, document, dateFields));
        for (let at = 0; at < reads; at += 1) {
          // A row has the dates of its document, and no full-text index.
          const { find, meaning } = overRows.filter();
          const expected = rows.filter((row) => holds(meaning, row, dateFields)).map(({ id }) => id);
          const reading = app.read('readView', name, { filter: JSON.stringify(find), select: 'id', limit: '1000' });
          if (isRefused(meaning, true)) await expectRefused(reading, { view: own.find, find });
          else expectMatches(await reading, expected, { view: own.find, find });
        }
      }
    });
  },
);

async function createQuery(
  app: TestApp,
  name: string,
  sourceCollection: string,
  find: object,
  fields: readonly string[],
): Promise<void> {
  const parameters = fields.map((path, at) => ({ name: `p${at}`, field_path: path }));
  await fixture.methods.createQuery({
    appId: app.appId,
    name,
    sourceCollection,
    description: '',
    version: '',
    readAccess: '',
    mayPublish: false,
    exampleRequestJson: Buffer.alloc(0),
    exampleResponseJson: Buffer.alloc(0),
    idempotency: noIdempotency,
    baseQueryJson: Buffer.from(JSON.stringify({ find, select: ['id'] })),
    parametersJson: Buffer.from(JSON.stringify(parameters)),
  });
}

async function createView(app: TestApp, name: string, source: string, find: object): Promise<string> {
  const ticketId = newTicket('j', app.number);
  await fixture.methods.createView({
    appId: app.appId,
    appNumber: app.number.toString(),
    name,
    sourceCollections: [source],
    ticketId,
    refreshMode: '',
    variablesJson: Buffer.alloc(0),
    readAccess: '',
    queryJson: Buffer.from(JSON.stringify({ find })),
  });
  await app.completed(ticketId);
  return name;
}
