import { project } from '../json/project';
import { JoinedRecords } from '../query/execute/joined-records';
import { parseJoinedSelect } from '../query/language/joined-select';
import type { ViewQuery } from './language/view-query';

/** A row of viewRows(): JSON texts by the names of its columns, the first of which is `body`. */
export type ComputedRow = Readonly<Record<string, string | null>>;

/**
 * Makes the text of a row of a view from a row of its statement: with the partners of joins, and as its select leaves
 * it.
 */
export function rowTexts({ groups, joins, projection }: ViewQuery): (row: ComputedRow) => string {
  const whole = documentText(groups ? [] : joins.map(({ alias }) => alias));
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
    const partners = aliases.map((_, index) => {
      const text = row[`p${index}`] ?? null;
      return text === null ? '0:' : `1:${Buffer.byteLength(text)}:${text}`;
    });
    return records.write(Buffer.from(row['body']!), Buffer.from(partners.join('')))!.toString();
  };
}
