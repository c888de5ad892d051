import { isAll, type Condition } from '../language/condition';
import { conjuncts } from './equalities';
import { isNarrowedBy } from './narrowing';
import type { Order } from './order';
import type { Relation } from './relation';

/** Rows of the head of a scan: milliseconds. */
const headRowsMax = 10_000;
/** A row in the order of ids takes as long as so many rows in any order, which several processes read. */
const orderedRowCost = 8n;
/** From this offset on, the matches before a page of a large collection may be too many to sort. */
const largeOffset = 1_000;

/**
 * A statement of a scan, which reads documents because no index narrows their filter:
 *
 * - `head`: the first rows in the order of ids. Of a filter that many documents match they give the page.
 * - `ordered`: all rows in that order, for there are few.
 * - `whole`: all rows in any order, by several processes at a time. The matches are sorted.
 */
export type ScanStep = { kind: 'head'; rows: number } | { kind: 'ordered' } | { kind: 'whole' };

/** Whether the statement for a filter reads all documents. */
export function isScanned(relation: Relation, filter: Condition): boolean {
  if (relation.kind !== 'documents' || isAll(filter) || isNarrowedBy(relation, filter)) return false;
  // Postgres may skip through an index whose first field the filter does not name.
  return [...conjuncts(filter)].every((part) => !('path' in part) || !relation.keys.has(part.path.join('.')));
}

/** The first step of a page whose rows are put in an order; undefined where the filter is no scan. */
export function firstScanStep(relation: Relation, filter: Condition, order: Order): ScanStep | undefined {
  if (!isScanned(relation, filter)) return undefined;
  if (order.terms.length > 0) return { kind: 'whole' };
  return relation.tableRowCount > headRowsMax ? { kind: 'head', rows: headRowsMax } : { kind: 'ordered' };
}

/**
 * Plans the step after a head of so many rows that has filled only `recordCount` records of the page. Undefined where
 * the matches are so frequent that the rows are best read in order until the page is full.
 */
export function stepAfterHead(
  { relation, limit, offset }: { relation: Relation; limit: number; offset: number },
  rows: number,
  recordCount: number,
): ScanStep | undefined {
  // A head without a record of the page may have as many matches as the offset. To sort so many is worth it if they are
  // few.
  const matches = recordCount > 0 || offset >= largeOffset ? offset + recordCount : 0;
  const isFrequent = BigInt(matches) * relation.tableRowCount > orderedRowCost * BigInt(rows) * BigInt(offset + limit);
  return isFrequent ? undefined : { kind: 'whole' };
}
