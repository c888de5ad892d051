import { sql, type Sql } from '@granary/shared/postgres/sql';
import { toText } from '@granary/shared/json/value';
import { isTruncated, orderedKey } from '../../values/ordered-key';
import type { ConditionOf, Path, TextMatch } from '../language/condition';
import { firstKeyAfterStrings, keysWithPrefix, keyValue } from './key-sql';
import type { RowFields } from './row-fields';

export function containsSql(fields: RowFields, { path, value }: ConditionOf<'contains'>): Sql {
  const field = fields.value(path);
  const element = sql`exists (select from jsonb_array_elements(
    case jsonb_typeof(${field}) when 'array' then ${field} else '[]'::jsonb end) e where e.value = ${toText(value)}::jsonb)`;
  if (typeof value !== 'string') return element;
  return sql`case jsonb_typeof(${field}) when 'array' then ${element}
    when 'string' then strpos(${field} #>> '{}', ${value}) > 0 end`;
}

export function textSql(fields: RowFields, { path, match, value }: ConditionOf<'text'>): Sql {
  return match === 'startsWith' ? startsWith(fields, path, value) : matching(fields, path, match, value);
}

function matching(fields: RowFields, path: Path, match: TextMatch, value: string): Sql {
  const field = fields.value(path);
  const text = sql`${field} #>> '{}'`;
  const lowerText = sql`lower((${text}) collate pg_unicode_fast)`;
  const lowerValue = sql`lower(${value}::text collate pg_unicode_fast)`;
  const matches = (): Sql => {
    switch (match) {
      case 'startsWith':
        return sql`starts_with(${text}, ${value})`;
      case 'endsWith':
        return sql`right(${text}, length(${value})) = ${value}`;
      case 'includesCaseInsensitive':
        return sql`strpos(${lowerText}, ${lowerValue}) > 0`;
      case 'startsWithCaseInsensitive':
        return sql`starts_with(${lowerText}, ${lowerValue})`;
      case 'endsWithCaseInsensitive':
        return sql`right(${lowerText}, length(${lowerValue})) = ${lowerValue}`;
    }
  };
  return sql`(jsonb_typeof(${field}) = 'string' and ${matches()})`;
}

/** The strings with a prefix are a range of keys. */
function startsWith(fields: RowFields, path: Path, prefix: string): Sql {
  const column = fields.keyOf(path);
  const exact = () => matching(fields, path, 'startsWith', prefix);
  if (!column) return exact();
  if (fields.isDate(path)) return sql`(${column} < ${firstKeyAfterStrings} and ${exact()})`;
  const key = orderedKey(prefix, false);
  if (isTruncated(key)) return sql`(${column} = ${keyValue(key)} and ${exact()})`;
  return keysWithPrefix(column, key);
}
