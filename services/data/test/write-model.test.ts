import * as fc from 'fast-check';
import { newTicket } from '@granary/shared/ids';
import type { Pool } from '@granary/shared/postgres/pool';
import { createPool } from '@granary/shared/postgres/pool';
import { partsOf } from '@granary/testing/seeds';
import { serviceDatabase } from '@granary/testing/service-database';
import { size } from '@granary/testing/size';
import { dataSchema } from '../src/service';
import { checkChain } from './support/check-chain';
import { log, newApp, noIdempotency, storeRequest, type App, type DataService } from './support/data-service';
import { mispredictNewDocuments } from './support/misprediction';
import { collectionNumber, fields, startCopy } from './support/write-fixture';
import {
  uniqueCollection,
  WriteModel,
  type Change,
  type Match,
  type Members,
  type Outcome,
  type StoredDocument,
} from './support/write-model';

/** Lists of commands, of which each has 20 to 120. */
const listCount = size({ run: 48, long: 10_000 });
/** Lists at a time, each in an application of its own. */
const lanes = 8;

/** A call as it is sent. `isRepeated`: it is sent again at once, under the same Idempotency-Key. */
type Command = { isRepeated: boolean } & (
  | { call: 'change'; change: Change }
  | { call: 'store'; collection: string; documents: readonly StoredDocument[] }
  | { call: 'batch'; changes: readonly Change[]; atomic: boolean }
  | { call: 'erase'; collection: string; id: string; ifMatch: Match }
);

const collection = fc.constantFrom('films', 'notes', uniqueCollection, uniqueCollection);
const id = fc.constantFrom('a', 'b', 'c', 'd', 'e', 'ü "\\');
const value = fc.oneof({ weight: 6, arbitrary: fc.nat({ max: 5 }) }, fc.constant(null));
/** What a full-text index has words of, and what it has none of. */
const words = fc.constantFrom('Cats & dogs', 'the cat', 'e-mail', '', null, 7);
const members = fc
  .tuple(fc.dictionary(fc.constantFrom('n', 'm'), value, { maxKeys: 2 }), fc.option(words, { nil: undefined }))
  .map(([numbers, words]): Members => (words === undefined ? numbers : { ...numbers, words }));
const match: fc.Arbitrary<Match> = fc.oneof(
  { weight: 5, arbitrary: fc.constant(undefined) },
  { weight: 1, arbitrary: fc.constant('any' as const) },
  { weight: 2, arbitrary: fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 3 }) },
);
const change: fc.Arbitrary<Change> = fc
  .record({
    kind: fc.constantFrom('put' as const, 'merge' as const, 'delete' as const),
    collection,
    id,
    members,
    ifMatch: match,
    ifNoneMatch: match,
  })
  .map((one) => (one.kind === 'delete' ? { ...one, members: {}, ifNoneMatch: undefined } : one));
const operation: fc.Arbitrary<Change> = fc.record({
  kind: fc.constantFrom('create' as const, 'merge' as const, 'merge' as const, 'delete' as const),
  collection,
  id,
  members,
  conditionN: fc.option(fc.nat({ max: 5 }), { nil: undefined, freq: 3 }),
});
const document = fc.record({ id, members, deleted: fc.nat({ max: 7 }).map((n) => n === 0) });
const sameDocument = (one: Change, other: Change) => one.collection === other.collection && one.id === other.id;
const once = (changes: Change[]) =>
  changes.filter((one, at) => !changes.slice(0, at).some((earlier) => sameDocument(earlier, one)));
const operations = fc.array(operation, { minLength: 1, maxLength: 12 });
const isRepeated = fc.nat({ max: 5 }).map((n) => n === 0);
const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ call: fc.constant('change' as const), change, isRepeated }) },
  {
    weight: 2,
    arbitrary: fc.record({
      call: fc.constant('store' as const),
      collection,
      isRepeated,
      documents: fc.array(document, { minLength: 1, maxLength: 4 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc
      .record({ operations, atomic: fc.boolean(), isRepeated })
      .map(({ operations: all, atomic, isRepeated }) => {
        const changes = atomic ? once(all) : all;
        return { call: 'batch' as const, changes, atomic, isRepeated };
      }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ call: fc.constant('erase' as const), collection, id, ifMatch: match, isRepeated }),
  },
);
/** In a collection that the same batch creates either is true. */
const notFoundAlike = (outcome: Outcome): Outcome =>
  'reason' in outcome && outcome.reason === 'COLLECTION_NOT_FOUND' ? { reason: 'DOCUMENT_NOT_FOUND' } : outcome;

const commands = fc.array(command, { minLength: 20, maxLength: 120 });

/** What the generated calls must lead to. */
const outcomes = [
  'done',
  'ALREADY_EXISTS',
  'COLLECTION_NOT_FOUND',
  'DOCUMENT_NOT_FOUND',
  'PRECONDITION_FAILED',
  'UNIQUE_VIOLATION',
];

describe('the write path beside a model', () => {
  let pool: Pool;
  let service: DataService;
  const seen = new Map<string, number>();
  let existed: jest.SpyInstance;
  beforeAll(async () => {
    existed = mispredictNewDocuments();
    const { url } = await serviceDatabase(dataSchema);
    pool = createPool({ url, size: 3, applicationName: 'test', log });
    service = await startCopy(url);
  });
  afterAll(async () => {
    jest.restoreAllMocks();
    await service.stop();
    await pool.end();
  });

  const note = (outcome: unknown) => {
    const { reason } = outcome as { reason?: string };
    const key = reason ?? 'done';
    seen.set(key, (seen.get(key) ?? 0) + 1);
  };
  const reasonOf = (error: unknown) => ({ reason: (error as { reason: string }).reason });
  const versionsOf = (match: Match) =>
    match && { any: match === 'any', numbers: match === 'any' ? [] : match.map(String) };
  const textOf = ({ id, members }: Pick<Change, 'id' | 'members'>) => JSON.stringify({ id, ...members });

  /** Sends calls of one application; each with a key of its own. */
  function callsOf(app: App) {
    const base = () => ({ appId: app.appId, appNumber: app.number.toString(), ticketId: newTicket('c', app.number) });
    type Key = typeof noIdempotency;
    return {
      change: ({ collection, id, kind, members, ifMatch, ifNoneMatch }: Change, idempotency: Key) => {
        const body = kind === 'delete' ? '' : kind === 'put' ? textOf({ id, members }) : JSON.stringify(members);
        const matches = { ifMatch: versionsOf(ifMatch) ?? null, ifNoneMatch: versionsOf(ifNoneMatch) ?? null };
        const request = { ...base(), ...matches, collection, id, change: kind, body: Buffer.from(body), idempotency };
        return service.methods
          .changeDocument(request)
          .then(({ version, created, json }) => {
            const { deleted = false } = JSON.parse(json.toString()) as { deleted?: boolean };
            return { version: Number(version), created, deleted };
          })
          .catch(reasonOf);
      },
      store: (collection: string, documents: readonly StoredDocument[], idempotency: Key) =>
        service.methods
          .store(
            storeRequest(
              app,
              collection,
              documents.map(({ id, members, deleted }) => ({ id, ...members, ...(deleted && { deleted }) })),
              { idempotency },
            ),
          )
          .then(() => 'stored' as const)
          .catch(reasonOf),
      batch: (changes: readonly Change[], atomic: boolean, idempotency: Key) => {
        const operations = changes.map((one) => ({
          operation: one.kind === 'merge' ? 'update' : one.kind,
          collection: one.collection,
          data: one.kind === 'delete' ? { id: one.id } : { id: one.id, ...one.members },
          ...(one.conditionN !== undefined && { conditions: { n: one.conditionN } }),
        }));
        const body = Buffer.from(JSON.stringify({ operations, atomic }));
        return service.methods
          .batch({ ...base(), body, idempotency })
          .then(({ results }) =>
            results.map(({ error, version, created, deleted }): Outcome =>
              error ? notFoundAlike({ reason: error.reason }) : { version: Number(version), created, deleted },
            ),
          )
          .catch((error: unknown) => notFoundAlike(reasonOf(error)));
      },
      erase: (collection: string, id: string, ifMatch: Match, idempotency: Key) =>
        service.methods
          .eraseDocument({ ...base(), collection, id, ifMatch: versionsOf(ifMatch) ?? null, idempotency })
          .then(({ versions }) => Number(versions))
          .catch(reasonOf),
    };
  }

  const outcomeOf = (model: WriteModel, command: Command) => {
    switch (command.call) {
      case 'change':
        return model.change(command.change);
      case 'store': {
        const outcome = model.store(command.collection, command.documents);
        return 'reason' in outcome ? outcome : 'stored';
      }
      case 'batch': {
        const outcomes = command.atomic ? model.together(command.changes) : model.separately(command.changes);
        return 'reason' in outcomes ? notFoundAlike(outcomes) : outcomes.map(notFoundAlike);
      }
      case 'erase':
        return model.erase(command.collection, command.id, command.ifMatch);
    }
  };

  /** Whether the same call, sent again at once, is answered the same: not where refused operations are tried again. */
  const isKeptWhole = (command: Command, outcome: unknown) =>
    command.call !== 'batch' ||
    command.atomic ||
    (once([...command.changes]).length === command.changes.length &&
      !(outcome as Outcome[]).some((one) => 'reason' in one && one.reason === 'UNIQUE_VIOLATION'));

  async function round(list: readonly Command[]): Promise<void> {
    const app = await newApp(service);
    const schemaJson = fields({ n: { type: 'number', unique: true } });
    const unique = { appId: app.appId, name: uniqueCollection, schemaJson, readAccess: 'public' };
    await service.methods.createCollection(unique);
    await createFullText(app);
    const model = new WriteModel();
    const calls = callsOf(app);
    for (const [at, command] of list.entries()) {
      const path = `/${at}`;
      const key = { caller: app.appId, method: 'POST', path, key: path, contentHash: Buffer.from(path) };
      const send = () => {
        const idempotency = command.isRepeated ? key : noIdempotency;
        if (command.call === 'change') return calls.change(command.change, idempotency);
        if (command.call === 'store') return calls.store(command.collection, command.documents, idempotency);
        if (command.call === 'batch') return calls.batch(command.changes, command.atomic, idempotency);
        return calls.erase(command.collection, command.id, command.ifMatch, idempotency);
      };
      const expected = outcomeOf(model, command);
      expect([command, await send()]).toEqual([command, expected]);
      for (const one of Array.isArray(expected) ? expected : [expected]) note(one);
      if (command.isRepeated && isKeptWhole(command, expected)) {
        expect([command, 'again', await send()]).toEqual([command, 'again', expected]);
      }
    }
    for (const [name, documents] of model.collections) {
      const number = await collectionNumber(pool, app, name);
      const { rows } = await pool.query<{ id: string; version: bigint; deleted: boolean; body: string }>(
        `select id, version, deleted, body from a_${app.number}.c_${number}
         union all select id, version, deleted, body from a_${app.number}.h_${number} order by id, version`,
      );
      const stored = rows.map(({ version, body, ...row }) => ({
        ...row,
        version: Number(version),
        document: JSON.parse(body) as unknown,
      }));
      const expected = [...documents].flatMap(([id, versions]) => versions.map((version) => ({ id, ...version })));
      const byPlace = (one: { id: string; version: number }, other: { id: string; version: number }) =>
        one.id === other.id ? one.version - other.version : one.id < other.id ? -1 : 1;
      expect(stored.toSorted(byPlace)).toEqual(expected.toSorted(byPlace));
    }
    await checkSearchTexts(app);
    await checkChain(pool, app);
  }

  const createFullText = (app: App) =>
    service.methods.createIndex({
      appId: app.appId,
      appNumber: app.number.toString(),
      ticketId: newTicket('j', app.number),
      name: 'words',
      collection: uniqueCollection,
      fieldName: 'words',
      fields: [],
      unique: false,
      indexType: 'fulltext',
      language: 'english',
    });

  /** The full-text index has the words that the stored texts have. */
  async function checkSearchTexts(app: App): Promise<void> {
    const index = await pool.query<{ number: bigint; collection_number: bigint; status: string }>(
      'select number, collection_number, status from document_index where app_number = $1 and name = $2',
      [app.number, 'words'],
    );
    const { number, collection_number: collection, status } = index.rows[0]!;
    expect(status).toBe('ready');
    const differing = await pool.query(
      `select id, body from a_${app.number}.c_${collection}
       where t_${number} is distinct from search_text(body::jsonb #> '{words}')`,
    );
    expect([number, differing.rows]).toEqual([number, []]);
  }

  test.each(partsOf('write model', listCount))(
    'whatever is put, patched, deleted, stored, batched, erased and repeated by $cases lists of commands, answers and versions are those of a model (seed $seed)',
    async ({ seed, cases }) => {
      seen.clear();
      const lane = (at: number) => {
        const numRuns = Math.floor((cases + at) / lanes);
        return fc.assert(fc.asyncProperty(commands, round), { seed: seed + at, numRuns, endOnFailure: true });
      };
      await Promise.all(Array.from({ length: lanes }, (_, at) => lane(at)));
      // A generator that has drifted does not make them all, and proves nothing.
      expect(outcomes.filter((outcome) => !seen.has(outcome))).toEqual([]);
      expect(existed).toHaveBeenCalled();
    },
  );
});
