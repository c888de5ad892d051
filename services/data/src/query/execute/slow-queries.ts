import { LRUCache } from 'lru-cache';
import { shortened } from '@granary/shared/shortened';
import { filterShape } from '../plan/describe-plan';
import { adviseIndex } from '../plan/index-advice';
import type { PagePlan } from '../plan/page-plan';

/** Collections whose queries are recorded, at most, and shapes of each. */
const collectionsMax = 500;
const shapesMax = 30;
/**
 * Characters of a filter, of a sort, and of the name of a field that an index is advised for. So all of it is 25 MB at
 * most.
 */
const filterLengthMax = 300;
const sortLengthMax = 150;
const fieldLengthMax = 120;

/** Queries of one shape: they name the same fields and operators, and differ in values. */
export interface QueryShape {
  filter: string;
  /** Names of fields with commas between them; `-field` descends. */
  sort: string;
  count: number;
  totalMs: number;
  maxMs: number;
  lastAt: Date;
  /** The fields of an index that would serve it; none where no index would. */
  advisedFields: readonly string[];
}

/**
 * The shapes of queries that Postgres scanned or sorted for, of each collection, in bounded memory. Pages that one
 * index gives alone are not recorded, so they cost nothing here. No values are kept.
 */
export class SlowQueries {
  readonly since = new Date();
  readonly #collections = new LRUCache<string, Map<string, QueryShape>>({ max: collectionsMax });

  record(plan: PagePlan, elapsedMs: number): void {
    const { kind, collection } = plan.relation;
    if (collection === undefined) return;
    let shapes = this.#collections.get(collection);
    if (!shapes) this.#collections.set(collection, (shapes = new Map<string, QueryShape>()));
    const filter = `${kind === 'history' ? 'history: ' : ''}${filterShape(plan.filter, filterLengthMax)}`;
    const terms = plan.access.order.terms.map(({ path, descending }) => `${descending ? '-' : ''}${path.join('.')}`);
    const sort = shortened(terms.join(','), sortLengthMax);
    const key = `${filter}\0${sort}`;
    const { fields } = adviseIndex(plan);
    const existing = shapes.get(key);
    // A shape that ran again is the newest, so that the oldest one gives way.
    shapes.delete(key);
    shapes.set(key, {
      filter,
      sort,
      count: (existing?.count ?? 0) + 1,
      totalMs: (existing?.totalMs ?? 0) + elapsedMs,
      maxMs: Math.max(existing?.maxMs ?? 0, elapsedMs),
      lastAt: new Date(),
      advisedFields: fields.every(({ length }) => length <= fieldLengthMax) ? fields : [],
    });
    if (shapes.size > shapesMax) shapes.delete(shapes.keys().next().value!);
  }

  /** Returns the shapes of the queries of a collection, the longest total time first. */
  shapesOf(collection: string): QueryShape[] {
    const shapes = this.#collections.get(collection)?.values() ?? [];
    return [...shapes].sort((a, b) => b.totalMs - a.totalMs);
  }
}
