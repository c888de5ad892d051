import type { Queryable } from '@granary/shared/postgres/pool';
import { findReferences } from '../../catalog/references';
import type { Condition } from '../language/condition';
import { datasetsOf, hasReferences, withReferences } from '../language/references';

/**
 * The condition with what it names beside fields looked up, so that it can be compiled. Throws INVALID_QUERY where that
 * does not exist.
 */
export function resolveReferences(db: Queryable, appId: string, condition: Condition): Condition | Promise<Condition> {
  const datasets = hasReferences(condition) ? datasetsOf(condition) : undefined;
  return datasets ? findReferences(db, appId, datasets).then((found) => withReferences(condition, found)) : condition;
}
