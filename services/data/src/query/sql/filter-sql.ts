import { empty, join, sql, type Sql } from '@granary/shared/postgres/sql';
import type { Condition, FieldCondition } from '../language/condition';
import { assertExpressions } from '../language/regexp-operators';
import { datasetSql } from './dataset-sql';
import { emptySql, existsSql, inSql, isSql } from './equality-sql';
import { countrySql, networkSql } from './network-sql';
import type { Relation } from '../plan/relation';
import type { ParentRow } from './parent-row';
import { rangeSql } from './range-sql';
import { regexpSql } from './regexp-sql';
import { referenceSql } from './reference-sql';
import { always, never, RowFields } from './row-fields';
import { searchSql } from './search-sql';
import { containsSql, textSql } from './text-sql';

/** Compiles conditions on the rows of one relation, which in a join may refer to those of another. */
export class Compiler extends RowFields {
  constructor(
    source: Relation,
    private readonly parent?: ParentRow,
  ) {
    super(source);
  }

  /** A WHERE clause, empty when every row counts. Throws LIMIT_EXCEEDED for too many regular expressions. */
  where(condition: Condition, ...more: Sql[]): Sql {
    assertExpressions(condition);
    const parts = [...this.visible(), ...more, this.condition(condition)].filter((part) => part !== always);
    return parts.length === 0 ? empty : sql`where ${join(parts, ' and ')}`;
  }

  /**
   * A condition as SQL. Null stands for false until a `none` turns it round, which then makes it true: so a leaf may
   * leave it to Postgres that a comparison with a missing value is null.
   */
  condition(condition: Condition): Sql {
    switch (condition.kind) {
      case 'and':
        return this.#list(condition.conditions, ' and ', always);
      case 'or':
        return this.#list(condition.conditions, ' or ', never);
      case 'none':
        return sql`(${this.#list(condition.conditions, ' or ', never)}) is not true`;
      case 'reference':
        if (!this.parent) throw new Error('There is no record to refer to');
        return referenceSql(this, this.parent, condition);
      default:
        return fieldSql(this, condition);
    }
  }

  #list(conditions: readonly Condition[], separator: ' and ' | ' or ', nothing: Sql): Sql {
    const parts = conditions.map((condition) => this.condition(condition)).filter((part) => part !== nothing);
    if (parts.length === 0) return nothing;
    return parts.length === 1 ? parts[0]! : sql`(${join(parts, separator)})`;
  }
}

/** A condition on one field; the SQL of each kind is in the file of its operators. */
function fieldSql(fields: RowFields, condition: Exclude<FieldCondition, { kind: 'reference' }>): Sql {
  switch (condition.kind) {
    case 'is':
      return isSql(fields, condition);
    case 'in':
      return inSql(fields, condition);
    case 'empty':
      return emptySql(fields, condition);
    case 'exists':
      return existsSql(fields, condition);
    case 'range':
      return rangeSql(fields, condition);
    case 'contains':
      return containsSql(fields, condition);
    case 'text':
      return textSql(fields, condition);
    case 'regexp':
      return regexpSql(fields, condition);
    case 'network':
      return networkSql(fields, condition);
    case 'country':
      return countrySql(fields, condition);
    case 'dataset':
      return datasetSql(fields, condition);
    case 'search':
      return searchSql(fields, condition);
  }
}
