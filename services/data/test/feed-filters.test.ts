import type { FeedChannel } from '@granary/shared/gen/granary/data/v1/FeedChannel';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { startFixture, type Fixture } from './support/query-fixture';
import { filterGenerator, type Filter } from './support/query-generator';
import { holds } from './support/query-reference';
import { dateFields, documentValues } from './support/query-values';
import { seededRandom, type Random } from './support/random';

/*
 * Channels with many filters at once: found by the values that they ask for, or evaluated together, by one statement
 * for all filters of one form. Each has to get what its meaning holds for, and the removal of what it held for before.
 */

const roundCount = size({ run: 40, long: 3_000 });
const documentCount = 30;
const filterCount = 60;
/** Filters of one form, with other constants. */
const variantCount = 4;

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());

const channelOf = ({ find }: Pick<Filter, 'find'>): FeedChannel => ({
  collections: ['docs'],
  find: Buffer.from(JSON.stringify(find)),
  select: Buffer.alloc(0),
  omitsDocuments: true,
  onlyLatest: false,
  mayReadPrivate: true,
  isDelegated: false,
  location: '',
  view: '',
});

function filtersOf(random: Random): Filter[] {
  const values = documentValues(random);
  const generator = filterGenerator(values, false);
  const filters: Filter[] = [];
  while (filters.length < filterCount) {
    const filter = random(3) === 0 ? generator.fixing() : generator.filter();
    if (/inCountry|inDataset/.test(JSON.stringify(filter.meaning))) continue;
    filters.push(filter);
    if (!('operator' in filter.meaning)) continue;
    const { path, operator } = filter.meaning;
    for (let variant = 0; variant < variantCount; variant += 1) {
      const operand = generator.operand(operator, path.join('.'));
      const sent =
        operator === 'between' ? { from: (operand as unknown[])[0], to: (operand as unknown[])[1] } : operand;
      const spelled = { isNot: 'ne', '>': 'gt', '>=': 'gte', '<': 'lt', '<=': 'lte' }[operator] ?? operator;
      filters.push({ find: { [path.join('.')]: { [spelled]: sent } }, meaning: { path, operator, operand } });
    }
  }
  return filters;
}

/** The changes of each channel, as `id version event`. */
async function changesOf(
  appId: string,
  filters: readonly Filter[],
): Promise<{ told: string[][]; refused: Set<number> }> {
  const told: string[][] = filters.map(() => []);
  const refused = new Set<number>();
  for (let since = '0', more = true; more;) {
    const response = await fixture.methods.readChanges({
      appId,
      since,
      channelsDigest: Buffer.alloc(0),
      channels: filters.map(channelOf),
      limit: 1_000,
      bytesMax: 16 * 1024,
      waitMs: 0,
      catalogRevision: '0',
      isOpening: false,
    });
    ({ cursor: since, more } = response);
    for (const { channel, error } of response.refusals) {
      // A date is compared with dates only.
      const isOfDate = /"d[.$"]/.test(JSON.stringify(filters[channel]!.find)) && error!.reason === 'INVALID_QUERY';
      if (!isOfDate) expect(error).toMatchObject({ reason: 'TOO_MANY_FILTERS' });
      refused.add(channel);
    }
    for (const { events } of response.changes) {
      for (const { kind, members, channels } of events) {
        const { id, version, reason } = JSON.parse(`{${members.toString()}}`) as Record<string, string>;
        for (const channel of channels) told[channel]!.push(`${id} ${version} ${reason ?? kind}`);
      }
    }
  }
  return { told, refused };
}

async function runRound(random: Random): Promise<void> {
  const isDate = random(2) === 0;
  const app = await fixture.newApp();
  await app.createCollection('docs');
  if (isDate) await app.createIndex('docs', 'd', 'date');
  const values = documentValues(random);
  const ids = Array.from({ length: documentCount }, (_, at) => `k${at}`);
  const versions: Array<Record<string, unknown>> = [...ids, ...ids].map((id) => ({ ...values.document(0), id }));
  for (const offset of [0, documentCount]) {
    await app.store(
      'docs',
      versions.slice(offset, offset + documentCount).map((document) => JSON.stringify(document)),
    );
  }
  const dates = isDate ? dateFields : new Set<string>();
  const filters = filtersOf(random);
  const expected = filters.map(({ meaning }) => {
    const shown = new Set<unknown>();
    return versions.flatMap((document, index) => {
      const version = `${String(document['id'])} ${index < documentCount ? 1 : 2}`;
      const isShown = holds(meaning, document, dates);
      const wasShown = shown.has(document['id']);
      if (isShown) shown.add(document['id']);
      return isShown ? [`${version} put`] : wasShown ? [`${version} filtered`] : [];
    });
  });
  const { told, refused } = await changesOf(app.appId, filters);
  const kept = (lists: readonly string[][]) =>
    lists.flatMap((list, channel) => (refused.has(channel) ? [] : [{ find: filters[channel]!.find, told: list }]));
  expect(kept(told)).toEqual(kept(expected));
  expect(refused.size).toBeLessThan(filters.length / 2);
  for (const channel of refused) expect(told[channel]).toEqual([]);
}

test.each(partsOf('feed filters', roundCount))(
  'in $cases apps each of many filters gets exactly the changes that its meaning holds for (seed $seed)',
  async ({ seed, cases }) => {
    const random = seededRandom(seed);
    for (let round = 0; round < cases; round += 1) await runRound(random);
  },
);

test('beyond so many selections in one request, channels are refused, and the others get their documents', async () => {
  const app = await fixture.newApp();
  await app.store('docs', [JSON.stringify({ id: 'a', f: 1 })]);
  const selectionsMax = 32;
  const { changes, refusals } = await fixture.methods.readChanges({
    appId: app.appId,
    since: '0',
    channelsDigest: Buffer.alloc(0),
    channels: Array.from({ length: selectionsMax + 3 }, (_, index) => ({
      ...channelOf({ find: {} }),
      select: Buffer.from(JSON.stringify(['id', `f${index}`])),
      omitsDocuments: false,
    })),
    limit: 10,
    bytesMax: 1024 * 1024,
    waitMs: 0,
    catalogRevision: '0',
    isOpening: false,
  });
  expect(refusals.map(({ channel, error }) => [channel, error!.reason])).toEqual(
    [0, 1, 2].map((beyond) => [selectionsMax + beyond, 'TOO_MANY_FILTERS']),
  );
  expect(changes.flatMap(({ events }) => events.flatMap(({ channels }) => channels))).toEqual(
    Array.from({ length: selectionsMax }, (_, index) => index),
  );
});
