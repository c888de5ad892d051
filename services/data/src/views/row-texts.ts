import { project } from '@granary/shared/json/project';
import { computedDigitsMax } from '@granary/shared/json/number-range';
import { JsonNumber, readJson, toText, type JsonValue } from '@granary/shared/json/value';
import { JoinedRecords } from '../query/execute/joined-records';
import type { Path } from '../query/language/condition';
import { parseJoinedSelect } from '../query/language/joined-select';
import { columnPaths, type Groups } from './language/aggregates';
import type { ViewQuery } from './language/view-query';
import { isAsWritten } from './sql/grouped-sql';

/** A row of viewRows(): JSON texts by the names of its columns. */
export type ComputedRow = Readonly<Record<string, string | null>>;

/** Of a value of a group or an extreme: Postgres prints numbers without an exponent. */
const valueLimits = { maxDepth: 128, digitsMax: computedDigitsMax };

/** Makes the texts of the rows of a view from what its statement gives. */
export function rowTexts({ groups, joins, projection }: ViewQuery): (row: ComputedRow) => string {
  const whole = groups ? groupText(groups) : documentText(joins.map(({ alias }) => alias));
  return projection === 'all' ? whole : (row) => project(whole(row), projection);
}

function documentText(aliases: readonly string[]): (row: ComputedRow) => string {
  if (aliases.length === 0) return ({ body }) => body!;
  const every = { select: parseJoinedSelect(null, [], 'select'), keys: [], members: [] };
  const records = new JoinedRecords({
    select: parseJoinedSelect(null, aliases, 'select'),
    keys: aliases.map((alias) => Buffer.from(JSON.stringify(alias))),
    members: aliases.map((alias) => {
      const key = Buffer.from(`${JSON.stringify(alias)}:`);
      return { ...every, alias, at: alias, key, many: false };
    }),
  });
  return (row) => {
    const partners = aliases.map((_, at) => {
      const text = row[`p${at}`] ?? null;
      return text === null ? '0:' : `1:${Buffer.byteLength(text)}:${text}`;
    });
    return records.write(Buffer.from(row['body']!), Buffer.from(partners.join('')))!.toString();
  };
}

/** A member of a row: a column, or an object of them. */
export interface ColumnNode {
  column: number | undefined;
  members: Map<string, ColumnNode>;
}

/** JSON text of an object in which each path has the text of its column; dotted paths give nested objects. */
function groupText(groups: Groups): (row: ComputedRow) => string {
  const written = new Set(
    groups.aggregates.flatMap((aggregate, at) => (isAsWritten(aggregate) ? [groups.by.length + at] : [])),
  );
  const root = columnTree(columnPaths(groups));
  const write = ({ column, members }: ColumnNode, row: ComputedRow): string => {
    if (column !== undefined) {
      const text = row[`c${column}`] ?? 'null';
      return written.has(column) ? text : canonicalText(text);
    }
    const texts = [...members].map(([step, member]) => `${JSON.stringify(step)}:${write(member, row)}`);
    return `{${texts.join(',')}}`;
  };
  return (row) => write(root, row);
}

/** The object in which each path has its column; dotted paths give nested objects. */
export function columnTree(paths: readonly Path[]): ColumnNode {
  const root: ColumnNode = { column: undefined, members: new Map() };
  paths.forEach((path, at) => {
    let node = root;
    for (const step of path) {
      let next = node.members.get(step);
      if (!next) node.members.set(step, (next = { column: undefined, members: new Map() }));
      node = next;
    }
    node.column = at;
  });
  return root;
}

/** The text of a jsonb in one spelling: equal values have equal texts, so 1.0 is 1, and 0.30 is 0.3. */
export function canonicalText(text: string): string {
  if (/^[[{]/.test(text)) return toText(canonicalValue(readJson(Buffer.from(text), valueLimits)));
  return /^-?\d/.test(text) ? canonicalNumber(text) : text;
}

function canonicalValue(value: JsonValue): JsonValue {
  if (value instanceof JsonNumber) return new JsonNumber(canonicalNumber(value.text));
  if (Array.isArray(value)) return value.map(canonicalValue);
  if (value instanceof Map) return new Map([...value].map(([key, member]) => [key, canonicalValue(member)] as const));
  return value;
}

/** Postgres prints numbers without an exponent, and keeps the zeros with which they were written. */
const canonicalNumber = (text: string): string => (text.includes('.') ? text.replace(/\.?0+$/, '') : text);
