import { newTicket } from '@granary/shared/ids';
import { scaledMs } from '@granary/shared/testing/speed';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { seededRandom } from './support/random';
import type { Meaning } from './support/query-reference';
import { viewRecords, type Source, type ViewJoinMeaning, type ViewMeaning } from './support/view-reference';

const seed = Number(process.env['VIEWS_SEED'] ?? 16);
const viewCount = Number(process.env['VIEWS_COUNT'] ?? 250);
/** Views that are built at a time: the jobs of one app take turns. */
const batch = 25;
const random = seededRandom(seed);
const pick = <T>(from: readonly T[]): T => from[random(from.length)]!;

let fixture: Fixture;
let app: TestApp;
const sources = new Map<string, Source>();

const groups = ['a', 'b', 'é', '', 'a'.repeat(300), 0, 1, 2.5, -1, true, false, null, ['x', 1], { y: 1 }];
const dates = ['2024-01-01T00:00:00Z', '2024-01-01T01:00:00+01:00', '2023-06-01T12:00:00Z', 'soon', 1704067200, null];
const numbers = [0, 1, 2, -3, 0.25, 0.5, 100, 9_007_199_254_740_991, 'n', true, null, [1]];
const references = [...Array.from({ length: 12 }, (_, at) => `k${at}`), 1, 2, null, ['k1']];
const fields = ['g', 'h', 'd', 'n', 'o.x', 'ref', 'id', 'gone'] as const;

function makeDocument(id: string): { id: string } & Record<string, unknown> {
  const document: { id: string } & Record<string, unknown> = { id };
  const members = { g: groups, h: groups.slice(0, 3), d: dates, n: numbers, ref: references } as const;
  for (const [field, values] of Object.entries(members)) if (random(7) > 0) document[field] = pick(values);
  if (random(4) > 0) document['o'] = { x: pick(numbers), z: 1 };
  return document;
}

/** Writes documents, changes some of them and deletes others, and remembers what is visible. */
async function makeCollection(name: string, count: number): Promise<void> {
  await app.createCollection(name);
  const visible = new Map<string, { document: Record<string, unknown>; place: number }>();
  let place = 0;
  const write = async (ids: readonly string[], isDeleted: boolean): Promise<void> => {
    const documents = ids.map((id) => Object.assign(makeDocument(id), isDeleted ? { deleted: true } : {}));
    await app.store(
      name,
      documents.map((document) => JSON.stringify(document).replaceAll(':1,', ':1.0,').replaceAll(':100,', ':1e2,')),
    );
    for (const document of documents) {
      visible.delete(document.id);
      if (!isDeleted) visible.set(document.id, { document, place: (place += 1) });
    }
  };
  const ids = Array.from({ length: count }, (_, at) => `k${at}`);
  await write(ids, false);
  await write(
    ids.filter(() => random(5) === 0),
    false,
  );
  await write(
    ids.filter(() => random(8) === 0),
    true,
  );
  // What is there already is not checked against the schema, so other text and numbers stand among the dates.
  const schemaJson = JSON.stringify({ fields: { d: { type: 'date' } } });
  await fixture.methods.updateCollection({ appId: app.appId, name, schemaJson });
  const documents = [...visible.values()].sort((a, b) =>
    Buffer.compare(Buffer.from(String(a.document['id'])), Buffer.from(String(b.document['id']))),
  );
  sources.set(name, { documents, dates: new Set(['d']) });
}

beforeAll(async () => {
  fixture = await startFixture();
  app = await fixture.newApp();
  await makeCollection('base', 120);
  await makeCollection('other', 40);
  await makeCollection('third', 20);
  await app.createIndex('base', 'g');
  await app.createIndex('other', 'ref');
}, scaledMs(60_000));
afterAll(() => fixture.stop());

function makeJoins(): ViewJoinMeaning[] {
  return Array.from({ length: pick([0, 0, 1, 1, 2]) }, (_, at): ViewJoinMeaning => {
    const alias = pick(
      [
        ['x', 'g'],
        ['y', 'o'],
      ][at]!,
    );
    const path = pick(['id', 'ref', 'd', 'n', 'h']);
    // The alias may be the name of the field that the join goes by.
    const named = { g: ['g', 'g'], o: ['o.x', 'o.x'] }[alias] ?? [];
    const own = pick(['ref', 'd', 'id', 'h', 'n', ...named]);
    const to = at === 1 && !named.includes(own) && random(2) === 0 ? `x.${own}` : own;
    return { alias, collection: pick(['other', 'third', 'base']), isInner: random(2) === 0, on: [{ path, to }] };
  });
}

function makeView(): { view: ViewMeaning; query: Record<string, unknown>; sourceCollections: string[] } {
  let joins = makeJoins();
  // A reference to an alias that is not there would be one to a field of the base.
  if (joins[0]?.alias !== 'x') joins = joins.slice(0, 1);
  const scalars = [...fields, ...joins.flatMap(({ alias }) => fields.map((field) => `${alias}.${field}`))].filter(
    (path) => !joins.some(({ alias }) => alias === path),
  );
  const paths = [...scalars, ...joins.map(({ alias }) => alias)];
  const { find, meaning } = makeFind(paths);
  const by = [...new Set(Array.from({ length: random(3) }, () => pick(scalars)))].filter(
    (path, _, all) =>
      !all.some((other) => other !== path && (other.startsWith(`${path}.`) || path.startsWith(`${other}.`))),
  );
  const aggregates = Array.from({ length: random(5) }, (_, at) => {
    const operator = pick(['count', 'count', 'count_distinct', 'sum', 'avg', 'min', 'max', 'first', 'last']);
    return {
      alias: `c${at}`,
      operator,
      path: operator === 'count' && random(2) === 0 ? '*' : pick(/min|max/.test(operator) ? scalars : paths),
    };
  });
  const isGrouped = random(3) > 0 && by.length + aggregates.length > 0;
  // The language leaves the order of objects open.
  const ordered = aggregates.filter(({ operator, path }) => scalars.includes(path) || !/first|last/.test(operator));
  const sortable = isGrouped ? [...by, ...ordered.map(({ alias }) => alias)] : scalars;
  const sort = Array.from({ length: sortable.length === 0 ? 0 : random(3) }, () => ({
    path: pick(sortable),
    descending: random(2) === 0,
  }));
  const limit = random(3) === 0 ? 1 + random(20) : undefined;
  const view = { base: 'base', joins, meaning, groups: isGrouped ? { by, aggregates } : undefined, sort, limit };
  const query: Record<string, unknown> = {
    base: 'base',
    find,
    sort_by: sort.map(({ path, descending }) => `${descending ? '-' : ''}${path}`),
  };
  if (limit !== undefined) query['limit'] = limit;
  if (isGrouped) {
    query['group_by'] = by;
    query['aggregate'] = Object.fromEntries(
      aggregates.map(({ alias, operator, path }) => [alias, { [`$${operator}`]: path }]),
    );
  }
  if (joins.length > 0) {
    query['join'] = Object.fromEntries(
      joins.map(({ alias, collection, isInner, on }) => [
        alias,
        {
          collection,
          type: isInner ? 'inner' : 'left',
          on: Object.fromEntries(on.map(({ path, to }) => [path, `$data.${to}`])),
        },
      ]),
    );
  }
  return { view, query, sourceCollections: [...new Set(['base', ...joins.map(({ collection }) => collection)])] };
}

function makeFind(paths: readonly string[]): { find: Record<string, unknown>; meaning: Meaning } {
  const all: Meaning[] = [];
  const find: Record<string, unknown> = {};
  for (let part = random(3); part > 0; part -= 1) {
    const path = pick(paths);
    if (path in find) continue;
    const operator = pick(['isNot', 'isNull', 'exists', '>=', '<', 'isNotNull']);
    const scalar = pick([0, 1, 'a', '2024-01-01T00:00:00Z', true]);
    const operand = /Null|exists/.test(operator) ? random(3) === 0 : scalar;
    find[path] = { [operator === '>=' ? '$gte' : operator === '<' ? '$lt' : operator]: operand };
    all.push({ path: path.split('.'), operator, operand });
  }
  return { find, meaning: { all } };
}

/** Numbers by their value; averages are rounded differently here. */
const rounded = (value: unknown): unknown =>
  JSON.parse(
    JSON.stringify(value, (_, member: unknown) =>
      typeof member === 'number' ? Number(member.toPrecision(13)) : member,
    ),
  );

const query = JSON.stringify;

test(
  'every view has exactly the rows of its meaning, in its order',
  async () => {
    for (let made = 0; made < viewCount; made += batch) {
      const views = await Promise.all(
        Array.from({ length: batch }, async (_, at) => {
          const { view, query: asked, sourceCollections } = makeView();
          const name = `v${made + at}`;
          const ticketId = newTicket('j', app.number);
          await fixture.methods.createView({
            appId: app.appId,
            appNumber: app.number.toString(),
            name,
            queryJson: Buffer.from(query(asked)),
            sourceCollections,
            refreshMode: '',
            variablesJson: Buffer.from(''),
            readAccess: '',
            ticketId,
          });
          return { name, view, asked, ticketId };
        }),
      );
      for (const { name, view, asked, ticketId } of views) {
        await app.completed(ticketId);
        const { records } = await app.read('readView', name, { limit: '10000' });
        const expected = viewRecords(view, sources);
        expect({ seed, name, asked, records: rounded(records) }).toEqual({
          seed,
          name,
          asked,
          records: rounded(expected),
        });
        await fixture.methods.deleteView({ appId: app.appId, name, ticketId: '' });
      }
    }
  },
  scaledMs(240_000),
);
