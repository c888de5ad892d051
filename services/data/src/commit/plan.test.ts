import { createHash } from 'node:crypto';
import { ServiceError } from '@granary/shared/errors';
import type { CollectionRef } from '../catalog/collection';
import type { PreparedDocument } from '../documents/parser';
import { linkContent, nextLink, type Head } from '../chain/hash-chain';
import type { LockedHead } from './head';
import { plan, rowsOf, type BatchCollections } from './plan';
import type { Committed, PendingWrite, Write } from './write';

const head: LockedHead = { height: 7n, ordinal: 20n, hash: Buffer.alloc(32, 1), catalogRevision: 3n };

const collectionOf = (name: string, number: bigint): CollectionRef =>
  ({ appId: 'shop', appNumber: 1n, number, name, namespace: null, readAccess: 'private' }) as CollectionRef;
const films = collectionOf('films', 11n);
const actors = { ...collectionOf('actors', 12n), namespace: 'theirs' };

const collections = (
  known: readonly CollectionRef[],
  changes: Partial<Pick<BatchCollections, 'created' | 'refused'>> = {},
): BatchCollections => ({
  known: new Map(known.map((collection) => [collection.name, collection])),
  created: changes.created ?? new Set(),
  refused: changes.refused ?? new Map(),
});

const documentOf = (id: string) => ({ id }) as PreparedDocument;
const entryOf = (id: string) => ({ id, sha256: createHash('sha256').update(id).digest('binary') });

/** A write with one link for each list of ids. */
function writeOf(ticketId: string, collection: string, ...ids: string[][]): PendingWrite {
  const write: Partial<Write> = {
    ticketId,
    collections: [collection],
    operation: 'store',
    userAddress: null,
    links: (from) => {
      let last: Head = from;
      return ids.map((ofLink) => {
        const link = nextLink(last, linkContent(collection, ofLink.map(entryOf)));
        last = link;
        return { collection, link, documents: ofLink.map(documentOf) };
      });
    },
  };
  return { write: write as Write, resolve: () => {}, reject: () => {} };
}

const refusedWrite = (ticketId: string, error: Error): PendingWrite => {
  const pending = writeOf(ticketId, 'films', ['x']);
  pending.write.links = () => {
    throw error;
  };
  return pending;
};
const refusal = new ServiceError('INVALID_ARGUMENT', 'SCHEMA_VIOLATION', 'not valid');

test('each write is planned on the head that the one before it leaves, by the definition of the chain', () => {
  const writes = [
    writeOf('t1', 'films', ['a', 'b']),
    writeOf('t2', 'actors', ['c'], ['d']),
    writeOf('t3', 'films', ['a']),
  ];
  const planned = plan(head, writes, collections([films, actors]));
  expect(planned.from).toBe(head);
  let previous = head.hash;
  for (const [at, { link }] of planned.commits.entries()) {
    const height = Buffer.alloc(8);
    height.writeBigUInt64BE(head.height + BigInt(at + 1));
    expect(link.hash).toEqual(createHash('sha256').update(previous).update(height).update(link.content).digest());
    previous = link.hash;
  }
  expect(planned.to).toEqual({ height: 11n, ordinal: 24n, hash: previous, catalogRevision: 3n });
  expect(
    planned.commits.map(({ link, ticketId, namespace }) => [link.height, link.ordinal, ticketId, namespace]),
  ).toEqual([
    [8n, 21n, 't1', 'shop::films'],
    [9n, 22n, 't2', 'theirs'],
    [10n, 23n, null, 'theirs'],
    [11n, 24n, 't3', 'shop::films'],
  ]);
  expect(planned.outcomes.get(writes[1]!)).toMatchObject({
    ticketId: 't2',
    height: 9n,
    ids: ['c'],
    namespace: 'theirs',
    collectionNumber: 12n,
  });
  expect([planned.refused, planned.missing.size]).toEqual([[], 0]);
});

test('rows have the ordinal of their link and their place in it, by collection', () => {
  const writes = [
    writeOf('t1', 'films', ['a', 'b']),
    writeOf('t2', 'actors', [], ['d']),
    writeOf('t3', 'films', ['a']),
  ];
  const rows = rowsOf(plan(head, writes, collections([films, actors])));
  const places = [...rows].map(([{ name }, ofCollection]) => [
    name,
    ...ofCollection.map(({ document, ordinal, place }) => [document.id, ordinal, place]),
  ]);
  expect(places).toEqual([
    ['films', ['a', 21, 0], ['b', 21, 1], ['a', 24, 0]],
    ['actors', ['d', 23, 0]],
  ]);
});

test('a refused write leaves no link, and the others are planned as if it were not there', () => {
  const [first, last] = [writeOf('t1', 'films', ['a']), writeOf('t3', 'films', ['b'])];
  const refused = refusedWrite('t2', refusal);
  const planned = plan(head, [first, refused, last], collections([films]));
  const without = plan(head, [first, last], collections([films]));
  expect([planned.commits, planned.to]).toEqual([without.commits, without.to]);
  expect([planned.outcomes.get(refused), planned.refused]).toEqual([refusal, [refused]]);
});

test('a batch whose writes are all refused leaves the head where it is', () => {
  const planned = plan(head, [refusedWrite('t1', refusal)], collections([films]));
  expect([planned.to, planned.commits]).toEqual([head, []]);
});

test('an error that is no refusal is not swallowed', () => {
  const bug = new TypeError('a bug');
  expect(() => plan(head, [refusedWrite('t1', bug)], collections([films]))).toThrow(bug);
});

test('missing collections are named, except for refused writes, and their writes have no outcome yet', () => {
  const refused = refusedWrite('t1', refusal);
  const writes = [refused, writeOf('t2', 'new', ['a']), writeOf('t3', 'new', ['b']), writeOf('t4', 'actors', ['c'])];
  const planned = plan(head, writes, collections([actors]));
  expect([...planned.missing]).toEqual(['new']);
  expect([...planned.outcomes.keys()]).toEqual([refused, writes[3]]);
});

test('the first write of a collection that was created for it says so', () => {
  const writes = [writeOf('t1', 'films', ['a']), writeOf('t2', 'films', ['b'])];
  const planned = plan(head, writes, collections([films], { created: new Set(['films']) }));
  const access = writes.map((write) => (planned.outcomes.get(write) as Committed).createdWithAccess);
  expect(access).toEqual(['private', undefined]);
});

test('the writes of a collection that could not be created are refused for the same reason', () => {
  const limit = new ServiceError('INVALID_ARGUMENT', 'LIMIT_EXCEEDED', 'too many');
  const writes = [writeOf('t1', 'new', ['a']), writeOf('t2', 'films', ['b']), writeOf('t3', 'new', ['c'])];
  const planned = plan(head, writes, collections([films], { refused: new Map([['new', limit]]) }));
  expect(writes.map((write) => planned.outcomes.get(write) === limit)).toEqual([true, false, true]);
  expect([planned.refused, planned.missing.size]).toEqual([[writes[0], writes[2]], 0]);
});

test('the same arguments give the same plan', () => {
  const writes = [writeOf('t1', 'films', ['a']), refusedWrite('t2', refusal), writeOf('t3', 'actors', ['b'], ['c'])];
  const before = structuredClone(head);
  const [one, two] = [
    plan(head, writes, collections([films, actors])),
    plan(head, writes, collections([films, actors])),
  ];
  expect(two).toEqual(one);
  expect(head).toEqual(before);
});
