import { invalid, type ServiceError } from '@granary/shared/errors';
import { sqlState } from '@granary/shared/postgres/errors';
import { isAll } from '../language/condition';
import { adviseIndex, scannedByJoins } from '../plan/index-advice';
import { isNarrowedBy } from '../plan/narrowing';
import type { PagePlan } from '../plan/page-plan';

export const SCAN_LIMIT_EXCEEDED = 'SCAN_LIMIT_EXCEEDED';

/** The limits of a read by a caller without a key; pages that one index gives alone are below them by nature. */
export interface PublicLimits {
  /** Time of its statements together. */
  timeoutMs: number;
  /** Rows that its statements may pass where no index narrows them. */
  rowsMax: number;
}

/** From this offset on, the rows before the page may be what takes the time. */
const offsetAdvised = 1_000;

/**
 * Runs the statement of a page within the limits of a public read; undefined sets none. Throws SCAN_LIMIT_EXCEEDED,
 * which names the index that is missing: before the statement where it would pass too many rows, and when its time was
 * up where an index or a cursor would have spared it.
 */
export async function limitPage<T>(
  limits: PublicLimits | undefined,
  plan: PagePlan,
  read: () => Promise<T>,
): Promise<T> {
  if (!limits) return await read();
  const rows = scannedRows(plan);
  if (rows > limits.rowsMax) throw pageRefusal(plan, beyondRows(rows, limits));
  try {
    return await read();
  } catch (error) {
    if (!isStatementTimeout(error) || !isAvoidable(plan)) throw error;
    throw pageRefusal(plan, beyondTime(limits));
  }
}

/**
 * Runs the statement that counts the matches of a page within the limits of a public read, as limitPage() does; the
 * error advises to leave the total out.
 */
export async function limitCount<T>(
  limits: PublicLimits | undefined,
  { relation, filter }: PagePlan,
  count: () => Promise<T>,
): Promise<T> {
  if (!limits) return await count();
  const rows = isNarrowedBy(relation, filter) ? 0n : relation.tableRowCount;
  if (rows > limits.rowsMax) throw countRefusal(beyondRows(rows, limits));
  try {
    return await count();
  } catch (error) {
    if (!isStatementTimeout(error)) throw error;
    throw countRefusal(beyondTime(limits));
  }
}

// query_canceled
const isStatementTimeout = (error: unknown): boolean => sqlState(error) === '57014';

/**
 * Rows that a statement passes without an index that narrows them. A page in the order of an index ends once it is
 * full.
 */
function scannedRows(plan: PagePlan): bigint {
  const { relation, access, filter, joins = [] } = plan;
  const isInOrderOfIds = isAll(filter) && access.order.terms.length === 0;
  const isScan = access.method === 'sort' && !isInOrderOfIds && !isNarrowedBy(relation, filter);
  return scannedByJoins(joins).reduce(
    (sum, { relation: scanned }) => sum + scanned.tableRowCount,
    isScan ? relation.tableRowCount : 0n,
  );
}

/**
 * Whether another index, filter or cursor would make the page cheap: otherwise its time says that the database is busy.
 */
const isAvoidable = (plan: PagePlan): boolean =>
  missingIndexes(plan).length > 0 || plan.offset >= offsetAdvised || !isNarrowedBy(plan.relation, plan.filter);

/** The fields of the indexes that would serve a page and its joins; of a joined collection after its name. */
function missingIndexes(plan: PagePlan): string[] {
  const { fields } = adviseIndex({ ...plan, access: { ...plan.access, method: 'sort' } });
  const isThere = plan.relation.indexes.some((index) => fields.every((field, at) => index.fields[at] === field));
  const joined = scannedByJoins(plan.joins ?? []).flatMap(({ join, access }) =>
    access.method === 'scan' && access.hashed ? [`${join.model}.${access.hashed.path.join('.')}`] : [],
  );
  return [...(isThere ? [] : fields), ...joined];
}

const beyondRows = (rows: bigint, { rowsMax }: PublicLimits): string =>
  `would pass ${rows} records that no index narrows, where a public read may pass ${rowsMax}`;
const beyondTime = ({ timeoutMs }: PublicLimits): string => `takes longer than the ${timeoutMs} ms of a public read`;

function pageRefusal(plan: PagePlan, problem: string): ServiceError {
  const missing = missingIndexes(plan);
  const advice =
    missing.length > 0
      ? `an index over ${missing.join(', ')} is missing`
      : plan.offset >= offsetAdvised
        ? 'a cursor begins at the page, without the records before it'
        : 'no index serves it: add a condition that one narrows, or read with a key';
  return invalid(
    `The read ${problem}: ${advice}`,
    missing.length > 0 ? { missing_index: missing } : {},
    SCAN_LIMIT_EXCEEDED,
  );
}

const countRefusal = (problem: string): ServiceError =>
  invalid(
    `Counting the matches ${problem}: count=none leaves the total out`,
    { count: ['none leaves the total out'] },
    SCAN_LIMIT_EXCEEDED,
  );
