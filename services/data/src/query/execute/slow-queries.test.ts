import { parseFind } from '../language/filter';
import { planPage } from '../plan/page-plan';
import { documentsRelation } from '../plan/relation';
import type { CollectionRef } from '../../catalog/collection';
import { SlowQueries } from './slow-queries';

const relationOf = (number: number) => {
  const counters = { rowCount: 0n, deletedCount: 0n, versionCount: 0n, sizeBytes: 0n };
  const collection: Partial<CollectionRef> = { appNumber: 1n, number: BigInt(number), indexes: [], ...counters };
  return documentsRelation(collection as CollectionRef, { includeHistory: false, includeDeleted: true });
};

const planOf = (collection: number, field: string, value = 'x') =>
  planPage(relationOf(collection), {
    find: parseFind(new Map([[field, value]])),
    sort: [{ path: [field], descending: true }],
    limit: 10,
    offset: 0,
  });

test('queries that differ in values only are one shape, and no value is kept', () => {
  const queries = new SlowQueries();
  for (const value of ['secret', 'other']) queries.record(planOf(1, 'city', value), 5);
  queries.record(planOf(2, 'city'), 50);
  expect(queries.shapesOf('c1.1')).toMatchObject([{ filter: 'city is', count: 2, totalMs: 10, maxMs: 5 }]);
  expect(JSON.stringify(queries.shapesOf('c1.1'))).not.toMatch(/secret|other/);
});

test('however many shapes and names there are, and however long, a bounded number of characters is kept', () => {
  const queries = new SlowQueries();
  for (let collection = 0; collection < 1_000; collection += 1) {
    queries.record(planOf(collection, 'f'.repeat(10_000)), 1);
  }
  for (let shape = 0; shape < 1_000; shape += 1) queries.record(planOf(999, `${shape}${'g'.repeat(10_000)}`), 1);
  const kept = Array.from({ length: 1_000 }, (_, collection) => queries.shapesOf(`c1.${collection}`));
  expect(kept.filter((shapes) => shapes.length > 0).length).toBe(500);
  expect(kept[999]!.length).toBe(30);
  for (const shape of kept.flat()) expect(JSON.stringify(shape).length).toBeLessThan(700);
});
