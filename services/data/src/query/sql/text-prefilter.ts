import { join, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { JsonNumber, type JsonValue } from '@granary/shared/json/value';
import type { Comparison, Condition, ConditionOf, FieldCondition, Path } from '../language/condition';
import { comparisonSql } from './range-sql';

/** The texts of the rows that a scan reads. */
export interface DocumentTexts {
  body: Sql;
  /**
   * The text behind the first occurrence of a key with its quotes, up to the next one if any; empty where the key is
   * missing.
   */
  behindKey(quotedKey: string): Sql;
  isId(path: Path): boolean;
  isDate(path: Path): boolean;
}

/** Values of `in` that are looked for in a text, at most. */
const valuesMax = 8;

/**
 * A condition on the text of a document that every match of a filter fulfils; undefined where none is known. It costs a
 * fraction of parsing the text, and what it leaves is compared exactly.
 *
 * Texts are stored as they were written: with any whitespace, with characters as escapes, numbers in any spelling. In a
 * string that a text holds, a character of ASCII is itself or a `\u00` escape, `"`, `\` and `/` and control characters
 * apart.
 */
export function textPrefilter(texts: DocumentTexts, condition: Condition): Sql | undefined {
  switch (condition.kind) {
    case 'and': {
      const parts = condition.conditions.flatMap((part) => textPrefilter(texts, part) ?? []);
      return parts.length === 0 ? undefined : join(parts, ' and ');
    }
    case 'or':
      return anyOf(condition.conditions.map((part) => textPrefilter(texts, part)));
    case 'none':
      return undefined;
    default:
      return texts.isId(condition.path) ? undefined : fieldPrefilter(texts, condition);
  }
}

const anyOf = (parts: ReadonlyArray<Sql | undefined>): Sql | undefined => {
  const prefilters = parts.filter((part) => part !== undefined);
  return prefilters.length === 0 || prefilters.length < parts.length ? undefined : sql`(${join(prefilters, ' or ')})`;
};

function fieldPrefilter(texts: DocumentTexts, condition: FieldCondition): Sql | undefined {
  const { kind, path } = condition;
  switch (kind) {
    case 'is':
      return valuePrefilter(texts, path, condition.value);
    case 'in':
      return condition.values.length > valuesMax
        ? keyPrefilter(texts, path)
        : anyOf(condition.values.map((value) => valuePrefilter(texts, path, value)));
    case 'range':
      return rangePrefilter(texts, condition);
    case 'contains':
      return typeof condition.value === 'string' && condition.value !== ''
        ? stringPrefilter(texts, condition.value, condition.value)
        : keyPrefilter(texts, path);
    case 'text':
      return matchPrefilter(texts, condition);
    case 'regexp': {
      const { prefix } = condition.regexp;
      return prefix === '' ? keyPrefilter(texts, path) : stringPrefilter(texts, prefix, `"${prefix}`);
    }
    case 'exists':
    case 'network':
    case 'country':
      return keyPrefilter(texts, path);
    case 'empty':
    case 'search':
    case 'dataset':
    case 'reference':
      return undefined;
  }
}

function valuePrefilter(texts: DocumentTexts, path: Path, value: JsonValue): Sql | undefined {
  if (value === null) return undefined;
  // One instant has many texts, so a date is not searched for by its text.
  if (typeof value === 'string' && !texts.isDate(path)) return stringPrefilter(texts, value, `"${value}"`);
  if (value instanceof JsonNumber) return numberPrefilter(texts, path, sql`=`, value);
  return keyPrefilter(texts, path);
}

function matchPrefilter(texts: DocumentTexts, { path, match, value }: ConditionOf<'text'>): Sql | undefined {
  if (value !== '' && match === 'startsWith') return stringPrefilter(texts, value, `"${value}`);
  if (value !== '' && match === 'endsWith') return stringPrefilter(texts, value, `${value}"`);
  return keyPrefilter(texts, path);
}

function rangePrefilter(texts: DocumentTexts, { path, comparison, bound }: ConditionOf<'range'>): Sql | undefined {
  if (bound instanceof JsonNumber) return numberPrefilter(texts, path, comparisonSql[comparison], bound);
  if (typeof bound === 'string' && !texts.isDate(path)) return textRangePrefilter(texts, path, comparison, bound);
  return keyPrefilter(texts, path);
}

const hasEscape = (texts: DocumentTexts): Sql => sql`strpos(${texts.body}, ${trusted(`'\\'`)}) > 0`;
/** Whether characters of ASCII that need no escape may be written as one. */
const hasAsciiEscape = (texts: DocumentTexts): Sql =>
  sql`(${hasEscape(texts)} and strpos(${texts.body}, ${trusted(`'\\u00'`)}) > 0)`;

/** Whether `written`, which holds `content`, is in the text, or may be there with escapes. */
function stringPrefilter(texts: DocumentTexts, content: string, written: string): Sql {
  const isPlain = /^[ -~]*$/.test(content) && !/["\\/]/.test(content);
  return sql`(strpos(${texts.body}, ${written}) > 0 or ${isPlain ? hasAsciiEscape(texts) : hasEscape(texts)})`;
}

/**
 * The key of a field with its quotes. Between the end of a string and the begin of the next one there is a comma or a
 * colon, so a key without them and with its quotes is a whole string wherever the text has it, or the end of one.
 */
function quotedKey(path: Path): string | undefined {
  const key = path.at(-1)!;
  return /^[A-Za-z_$][\w$-]*$/.test(key) ? `"${key}"` : undefined;
}

/** Whether the text may have a key at all. */
function keyPrefilter(texts: DocumentTexts, path: Path): Sql | undefined {
  const key = quotedKey(path);
  if (key === undefined) return undefined;
  return sql`(strpos(${texts.body}, ${key}) > 0 or ${hasAsciiEscape(texts)})`;
}

const [numberStart, numberEnd, stringStart, stringEnd] = ['-', ':', '"', '#'];

/**
 * Whether what follows a key with its colon begins with a character from `start` on and before `end`. Of whitespace,
 * one space is expected; other texts are parsed.
 */
function beginsBetween(behind: Sql, start: string, end: string): Sql {
  const between = (colon: string) =>
    sql`${behind} >= ${trusted(`'${colon}${start}' collate "C"`)} and ${behind} < ${trusted(`'${colon}${end}' collate "C"`)}`;
  return sql`((${between(':')}) or (${between(': ')}))`;
}

/**
 * Whether a text mentions a key more than once, where it is mentioned: then the first value need not be that of the
 * path.
 */
const isRepeated = (texts: DocumentTexts, key: string, behind: Sql): Sql =>
  sql`octet_length(split_part(${texts.body}, ${key}, 1)) + ${trusted(String(key.length))} + octet_length(${behind}) < octet_length(${texts.body})`;

/** Whether the number that follows a key may be one that compares so. */
function numberPrefilter(texts: DocumentTexts, path: Path, operator: Sql, bound: JsonNumber): Sql | undefined {
  const key = quotedKey(path);
  if (key === undefined) return undefined;
  const behind = texts.behindKey(key);
  // Up to the next comma nothing but whitespace and the ends of objects and arrays follows a number.
  const number = sql`btrim(split_part(${behind}, ',', 1), ${trusted(`E':}] \\n\\r\\t'`)})::numeric`;
  const isPossible = sql`case when ${beginsBetween(behind, numberStart, numberEnd)}
    then ${number} ${operator} ${bound.text}::numeric else ${behind} <> '' end`;
  return sql`(${isPossible} or ${isRepeated(texts, key, behind)} or ${hasAsciiEscape(texts)})`;
}

/** Whether the string that follows a key may be one that compares so. */
function textRangePrefilter(texts: DocumentTexts, path: Path, comparison: Comparison, bound: string): Sql | undefined {
  const key = quotedKey(path);
  if (key === undefined) return undefined;
  const behind = texts.behindKey(key);
  const isPossible = sql`case when ${beginsBetween(behind, stringStart, stringEnd)}
    then split_part(${behind}, '"', 2) ${comparisonSql[comparison]} ${bound}::text collate "C" else ${behind} <> '' end`;
  return sql`(${isPossible} or ${isRepeated(texts, key, behind)} or ${hasEscape(texts)})`;
}
