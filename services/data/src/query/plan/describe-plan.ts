import { shortened } from '@granary/shared/shortened';
import { fieldNameOf } from '../../catalog/index-definition';
import type { Condition } from '../language/condition';
import type { AccessMethod } from './access-path';
import { describeJoins, type JoinDescription } from './join-plan';
import type { PagePlan } from './page-plan';

/** Characters of the shape of a filter, at most. */
const shapeMax = 1_000;

/** A plan as JSON: the names of fields and indexes, and no value of the request. */
export interface PlanDescription {
  method: AccessMethod;
  /** The index that is read in its order; null where Postgres chooses how the matches are found. */
  index: string | null;
  equal_fields: string[];
  order: Array<{ field: string; direction: 'ascending' | 'descending' }>;
  is_after_cursor: boolean;
  filter: string;
  /** The joins, each with its index or marked as a scan. */
  joins: JoinDescription[];
  alternative: { method: AccessMethod; when: string[] } | null;
}

/**
 * The reasons why an access path may fail to give the page. They depend on the values of a request, or on the rows that
 * it reads.
 */
const reasons: Partial<Record<AccessMethod, string[]>> = {
  id: ['the document is larger than 16 KiB', 'the statement exceeds the time limit of index reads'],
  index: [
    'a value is an array or an object, or a string over 256 bytes',
    'a document of the page is larger than 16 KiB',
    'the statement exceeds the time limit of index reads',
  ],
  index_order: ['a string that decides the order is longer than 256 bytes'],
};

export function describePlan({ relation, access, filter, after, joins = [] }: PagePlan): PlanDescription {
  const { method, index, order, alternative } = access;
  const ids = relation.hasIdColumn ? [{ path: ['id'], descending: order.descending }] : [];
  return {
    method,
    index: index?.index.name ?? null,
    equal_fields: index?.fixed.map(({ field }) => fieldNameOf(field.split('.'))) ?? (method === 'id' ? ['id'] : []),
    order: [...order.terms, ...ids].map(({ path, descending }) => ({
      field: path.join('.'),
      direction: descending ? 'descending' : 'ascending',
    })),
    is_after_cursor: after !== undefined,
    filter: filterShape(filter),
    joins: describeJoins(joins),
    alternative: alternative ? { method: alternative.method, when: reasons[method] ?? [] } : null,
  };
}

/** A filter without its values: `category is and (price >= or title startsWith)`. Cut to so many characters. */
export function filterShape(filter: Condition, max = shapeMax): string {
  return shortened(shapeOf(filter, false), max);
}

function shapeOf(condition: Condition, isNested: boolean): string {
  switch (condition.kind) {
    case 'and':
    case 'or': {
      const parts = condition.conditions.map((part) => shapeOf(part, true));
      if (parts.length === 0) return condition.kind === 'and' ? 'all' : 'none';
      const text = parts.join(` ${condition.kind} `);
      return isNested && parts.length > 1 ? `(${text})` : text;
    }
    case 'none':
      return `not (${condition.conditions.map((part) => shapeOf(part, true)).join(' or ')})`;
    case 'range':
      return `${fieldNameOf(condition.path)} ${condition.comparison}`;
    case 'text':
      return `${fieldNameOf(condition.path)} ${condition.match}`;
    case 'network':
      return `${fieldNameOf(condition.path)} CIDR`;
    case 'country':
      return `${fieldNameOf(condition.path)} inCountry`;
    case 'dataset':
      return `${fieldNameOf(condition.path)} inDataset`;
    default:
      return `${fieldNameOf(condition.path)} ${condition.kind}`;
  }
}
