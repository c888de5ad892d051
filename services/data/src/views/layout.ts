import type { Path } from '../query/language/condition';
import type { ViewColumn } from '../query/plan/relation';
import type { FieldType } from '../values/field-type';
import { isFieldValue } from './language/aggregates';
import type { ViewPlan } from './plan/view-plan';

/** Fields of the rows of one view that have a key and an index, at most. */
export const viewKeysMax = 32;

/** The known properties of the rows of a view. */
export interface ViewLayout {
  columns: ViewColumn[];
  /** Fields by which documents are joined and that no index is over, as `collection.field`. */
  unindexedFields: readonly string[];
  /** The fields of the sources that are dates: a live view keeps to those that it was built with. */
  dates?: readonly string[];
}

export const emptyLayout: ViewLayout = { columns: [], unindexedFields: [] };

export const readLayout = (text: string | null): ViewLayout =>
  text === null ? emptyLayout : (JSON.parse(text) as ViewLayout);

/**
 * The columns of the rows of a view. What it is sorted and grouped by, and what its variables name, has a key, up to
 * `viewKeysMax`.
 */
export function layoutOf(plan: ViewPlan, variablePaths: Iterable<Path>): ViewLayout {
  const { sort, groups } = plan.query;
  const paths = [...sort.map(({ path }) => path), ...(groups?.by ?? []), ...variablePaths];
  const keyed = [...new Set(paths.map((path) => path.join('.')))].slice(0, viewKeysMax);
  const types = columnTypes(plan, keyed);
  const columns = [...types].map(([name, type]): ViewColumn => {
    const key = keyed.indexOf(name);
    return { name, type, key: key < 0 ? undefined : key };
  });
  return { columns, unindexedFields: plan.unindexedFields, dates: [...plan.rows.dates] };
}

/** The types of fields by their names: those with keys, and all others whose type decides how they compare. */
function columnTypes({ query: { groups }, rows: { dates }, typeOf }: ViewPlan, keyed: readonly string[]) {
  const types = new Map<string, FieldType>();
  if (groups) {
    for (const path of groups.by) types.set(path.join('.'), typeOf(path));
    for (const aggregate of groups.aggregates) {
      types.set(aggregate.alias, isFieldValue(aggregate) ? typeOf(aggregate.path!) : 'number');
    }
    for (const name of keyed) if (!types.has(name)) types.set(name, 'any');
    return types;
  }
  for (const name of [...keyed, ...dates]) types.set(name, dates.has(name) ? 'date' : typeOf(name.split('.')));
  return types;
}
