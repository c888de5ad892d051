import { newTicket } from '@granary/shared/ids';
import type { Pool } from '@granary/shared/postgres/pool';
import { seededRandom } from '@granary/testing/random';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { NewDocuments } from '../src/commit/new-documents';
import { checkChain } from './support/check-chain';
import { newApp, noIdempotency, storeRequest, type App, type DataService } from './support/data-service';
import { collectionNumber, fields, startTwoCopies } from './support/write-fixture';

/** Each round has an application of its own. */
const roundCount = size({ run: 4, long: 200 });
const callsPerRound = 200;
const concurrentCalls = 24;
/** The documents of one bulk after which those of a collection are expected to be new. */
const fillCount = 1_000;

interface Call {
  documents: object[];
  collection: string;
  copy: DataService;
  /** The ticket is sent a second time, as after an answer that was lost. */
  isRepeated: boolean;
}

interface Stored {
  ids: string[];
  collection: string;
}

describe('documents that are expected to be new', () => {
  let pool: Pool;
  let one: DataService;
  let two: DataService;
  let app: App;
  let stop: () => Promise<void>;
  let isExpected: jest.SpyInstance;
  let existed: jest.SpyInstance;
  beforeAll(async () => {
    ({ pool, one, two, stop } = await startTwoCopies());
    isExpected = jest.spyOn(NewDocuments.prototype, 'isExpected');
    existed = jest.spyOn(NewDocuments.prototype, 'existed');
  });
  afterAll(async () => {
    jest.restoreAllMocks();
    await stop();
  });
  beforeEach(async () => {
    await openApp();
    jest.clearAllMocks();
  });
  afterEach(() => checkChain(pool, app));

  async function openApp(): Promise<void> {
    app = await newApp(one);
    await one.methods.createCollection({
      appId: app.appId,
      name: 'films',
      schemaJson: fields({}),
      readAccess: 'public',
    });
    const schemaJson = fields({ n: { type: 'number', unique: true } });
    await one.methods.createCollection({ appId: app.appId, name: 'seats', schemaJson, readAccess: 'public' });
  }

  /** Stores enough new documents that the copy expects more of them. */
  async function fill(collection: string, copy: DataService, name: string): Promise<Stored> {
    const documents = Array.from({ length: fillCount }, (_, n) => ({ id: `${name}-${n}` }));
    await copy.methods.store(storeRequest(app, collection, documents));
    return { ids: documents.map(({ id }) => id), collection };
  }

  /** A call with documents that are known, new, made an id for, or in the way of another's unique value. */
  function nextCall(random: () => number, number: number): Call {
    const documents = Array.from({ length: 1 + Math.floor(random() * 3) }, (_, place) => {
      const what = random();
      const deleted = random() < 0.1 ? { deleted: true } : {};
      if (what < 0.05) return { id: `known-${Math.floor(random() * 6)}`, ...deleted };
      if (what < 0.35) return { ...deleted };
      return { id: `new-${number}-${place}`, ...deleted };
    });
    const isUnique = random() < 0.4;
    const collection = isUnique ? 'seats' : 'films';
    const seats = documents.map((document) => ({ ...document, n: Math.floor(random() * 2_000) }));
    return {
      documents: isUnique ? seats : documents,
      collection,
      copy: random() < 0.8 ? one : two,
      isRepeated: random() < 0.1,
    };
  }

  async function send({ documents, collection, copy, isRepeated }: Call): Promise<Stored | undefined> {
    const request = storeRequest(app, collection, documents, { ticketId: newTicket('c', app.number) });
    try {
      const { resultsJson } = await copy.methods.store(request);
      if (isRepeated) expect((await copy.methods.store(request)).resultsJson.equals(resultsJson)).toBe(true);
      const results = JSON.parse(resultsJson.toString()) as Array<{ id: string }>;
      return { ids: results.map(({ id }) => id), collection };
    } catch (error) {
      expect(error).toMatchObject({ reason: 'UNIQUE_VIOLATION' });
      return undefined;
    }
  }

  /** How many versions each document of a collection has. */
  async function versionsOf(collection: string): Promise<Map<string, number>> {
    const number = await collectionNumber(pool, app, collection);
    const { rows } = await pool.query<{ id: string; versions: number }>(
      `select id, count(*)::int as versions from (
         select id from a_${app.number}.c_${number} union all select id from a_${app.number}.h_${number}) group by id`,
    );
    return new Map(rows.map(({ id, versions }) => [id, versions]));
  }

  async function round(random: () => number): Promise<void> {
    const stored: Stored[] = [];
    for (const collection of ['films', 'seats']) stored.push(await fill(collection, one, 'filled'));
    let sent = 0;
    const lane = async () => {
      while (sent < callsPerRound) {
        const number = (sent += 1);
        const outcome = await send(nextCall(random, number));
        if (outcome) stored.push(outcome);
        if (number % 60 === 0) stored.push(await fill('films', one, `filled-${number}`));
      }
    };
    await Promise.all(Array.from({ length: concurrentCalls }, lane));
    for (const collection of ['films', 'seats']) {
      const expected = new Map<string, number>();
      for (const { ids } of stored.filter((each) => each.collection === collection)) {
        for (const id of ids) expected.set(id, (expected.get(id) ?? 0) + 1);
      }
      expect(await versionsOf(collection)).toEqual(expected);
    }
  }

  test('after a thousand new documents a known id becomes a new version, under a key as without one', async () => {
    const key = { caller: 'k', method: 'POST', path: '/store', key: 'one', contentHash: Buffer.from('h') };
    for (const idempotency of [noIdempotency, key]) {
      await fill('films', one, `filled-${idempotency.key}`);
      const request = storeRequest(app, 'films', [{ id: 'filled--0', text: 'again' }, { id: 'new' }], { idempotency });
      existed.mockClear();
      await one.methods.store(request);
      expect(existed).toHaveBeenCalledTimes(1);
      // From now on it is replaced at once.
      await one.methods.store({ ...request, ticketId: newTicket('c', app.number), idempotency: noIdempotency });
      expect(existed).toHaveBeenCalledTimes(1);
    }
    const versions = await versionsOf('films');
    expect([versions.get('filled--0'), versions.get('new'), versions.get('filled--1')]).toEqual([5, 4, 1]);
  });

  test('a bulk whose known document gives up the unique value that a repeated one takes is stored', async () => {
    const bulk = Array.from({ length: 1_000 }, (_, n) => ({ id: `seat-${n}`, n }));
    await one.methods.store(storeRequest(app, 'seats', bulk));
    const next = Array.from({ length: 150 }, (_, n) => ({ id: `next-${n}`, n: 2_000 + n }));
    const repeated = [
      { id: 'twice', n: 3_000 },
      { id: 'seat-5', n: 3_001 },
      { id: 'twice', n: 5 },
    ];
    await one.methods.store(storeRequest(app, 'seats', [...next, ...repeated]));
    const versions = await versionsOf('seats');
    expect([versions.get('seat-5'), versions.get('twice'), versions.get('next-0')]).toEqual([2, 2, 1]);
  });

  test('documents without ids are expected to be new at once, and a unique value that is taken refuses one', async () => {
    const store = (data: object[]) => one.methods.store(storeRequest(app, 'seats', data));
    await store([{ n: 1 }]);
    await expect(store([{ n: 2 }, { n: 1 }])).rejects.toMatchObject({
      reason: 'UNIQUE_VIOLATION',
      details: { 'data[1].n': [expect.any(String)] },
    });
    await store([{ n: 2 }]);
    expect(isExpected).toHaveBeenCalled();
    expect(isExpected.mock.results.every(({ value }) => value === true)).toBe(true);
    expect(existed).not.toHaveBeenCalled();
    expect((await versionsOf('seats')).size).toBe(2);
  });

  test.each(partsOf('new documents', roundCount))(
    'known and new ids, unique values in the way and repeats, mixed and overlapping, leave each version that was answered, once ($cases rounds, seed $seed)',
    async ({ seed, cases }) => {
      for (let number = 0; number < cases; number += 1) {
        await round(seededRandom(seed + number));
        await checkChain(pool, app);
        await openApp();
      }
      const predictions = isExpected.mock.results.map(({ value }) => value as boolean);
      expect(predictions).toEqual(expect.arrayContaining([true, false]));
      expect(existed).toHaveBeenCalled();
    },
  );
});
