import { findApp } from '../src/catalog/app';
import { requireCollection, type CollectionRef } from '../src/catalog/collection';
import { ChannelSets } from '../src/feed/channel-set';
import { parseSince } from '../src/feed/cursor';
import { readFeedHead } from '../src/feed/feed-head';
import { readWindow, type FeedWindow } from '../src/feed/window';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());

const setOf = (mayReadPrivate: boolean) =>
  new ChannelSets().of(Buffer.alloc(0), [
    {
      collections: ['notes'],
      find: Buffer.alloc(0),
      select: Buffer.alloc(0),
      omitsDocuments: false,
      onlyLatest: false,
      mayReadPrivate,
      isDelegated: false,
      location: '',
      view: '',
    },
  ]);

const eventsOf = ({ changes }: FeedWindow) =>
  changes.flatMap(({ events }) => events.map(({ members }) => JSON.parse(`{${members.toString()}}`) as object));

/**
 * Reads what is behind a cursor: of a collection that is not there or, by a reader without a key, of `ref`.
 * `beforeLookUp` happens between the read of the head and that of the window.
 */
async function windowBehind(
  { appId }: TestApp,
  since: string,
  { beforeLookUp = async () => {}, isOpening = false, ref = undefined as CollectionRef | undefined },
): Promise<FeedWindow> {
  const app = await findApp(fixture.pool, appId);
  const head = await readFeedHead(fixture.pool, app, parseSince(since));
  await beforeLookUp();
  const source = {
    db: fixture.pool,
    fast: fixture.pool,
    app,
    lookUp: () => Promise.resolve(ref),
    pricesOf: () => Promise.resolve([]),
  };
  return readWindow(source, head, setOf(ref === undefined), { changesMax: 10, bytesMax: 1024, isOpening });
}

test('a collection that is dropped while a window is read ends its feeds only behind its removal', async () => {
  const app = await fixture.newApp();
  await app.store('notes', [JSON.stringify({ id: 'a' })]);
  const dropped = async () => {
    await fixture.methods.deleteCollection({ appId: app.appId, name: 'notes', force: true, cascade: false });
  };
  const early = await windowBehind(app, 'now', { beforeLookUp: dropped });
  expect([eventsOf(early), [...early.refusals], early.isWhole]).toEqual([[], [], false]);
  const later = await windowBehind(app, '1', {});
  expect(eventsOf(later)).toEqual([expect.objectContaining({ collection: 'notes', reason: 'dropped' })]);
  expect([...later.refusals.keys()]).toEqual([0]);
  expect(later.isWhole).toBe(true);
});

test('a feed of a collection that is not there is refused when it begins', async () => {
  const app = await fixture.newApp();
  await app.store('other', [JSON.stringify({ id: 'a' })]);
  const { refusals } = await windowBehind(app, 'now', { isOpening: true });
  expect([...refusals.values()]).toEqual([expect.objectContaining({ reason: 'COLLECTION_NOT_FOUND' })]);
});

test('a window for readers without a key is read again where its collection has become private meanwhile', async () => {
  const app = await fixture.newApp();
  await app.store('notes', [JSON.stringify({ id: 'a' })]);
  const ref = await requireCollection(fixture.pool, app.appId, 'notes');
  const cursor = (await windowBehind(app, 'now', { ref })).end;
  expect(cursor).toEqual({ height: 1n, place: 1, row: 0n });
  await app.store('notes', [JSON.stringify({ id: 'b' })]);
  const unaffected = await windowBehind(app, '1', { ref, beforeLookUp: () => app.createCollection('other') });
  expect(eventsOf(unaffected)).toEqual([expect.objectContaining({ id: 'b' })]);
  expect(unaffected.isWhole).toBe(true);
  const beforeLookUp = async () => {
    await fixture.methods.updateCollection({ appId: app.appId, name: 'notes', readAccess: 'private' });
  };
  const changed = await windowBehind(app, '1', { ref, beforeLookUp });
  expect([eventsOf(changed), changed.end, changed.isWhole]).toEqual([[], cursor, false]);
});

describe('clocks that differ', () => {
  /** The documents that a filter is told of from the beginning on. */
  const toldOf = async (app: TestApp) => {
    const { changes } = await fixture.methods.readChanges({
      appId: app.appId,
      since: '0',
      channelsDigest: Buffer.alloc(0),
      channels: [
        {
          collections: ['notes'],
          find: Buffer.from('{"n":{"gte":0}}'),
          select: Buffer.alloc(0),
          omitsDocuments: true,
          onlyLatest: false,
          mayReadPrivate: true,
          isDelegated: false,
          location: '',
          view: '',
        },
      ],
      limit: 100,
      bytesMax: 1024,
      waitMs: 0,
      catalogRevision: '0',
      isOpening: false,
    });
    const events = changes.flatMap((change) => change.events);
    return events
      .filter(({ kind }) => kind === 'put')
      .map(({ members }) => (JSON.parse(`{${members.toString()}}`) as { id: string }).id);
  };

  test('leave the commits to a collection that seems to be younger than they are', async () => {
    const app = await fixture.newApp();
    await app.createCollection('notes');
    await app.store('notes', [JSON.stringify({ id: 'a', n: 1 })]);
    await fixture.pool.query(
      `update collection set created_at = created_at + interval '20 milliseconds' + (
         select at - created_at from a_${app.number}.commits) where app_number = $1`,
      [app.number],
    );
    expect(await toldOf(app)).toEqual(['a']);
  });

  test('leave the commits to the second collection of a name that seems to be younger than they are', async () => {
    const app = await fixture.newApp();
    await app.store('notes', [JSON.stringify({ id: 'old', n: 1 })]);
    await fixture.methods.deleteCollection({ appId: app.appId, name: 'notes', force: true, cascade: false });
    await app.createCollection('notes');
    await app.store('notes', [JSON.stringify({ id: 'new', n: 1 })]);
    await fixture.pool.query(
      `update collection set created_at = created_at + interval '20 milliseconds' + (
         select at - created_at from a_${app.number}.commits where height = 2)
       where app_number = $1 and deleted_at is null`,
      [app.number],
    );
    expect(await toldOf(app)).toEqual(['new']);
  });
});
