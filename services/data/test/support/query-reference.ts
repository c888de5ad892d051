import { RE2JS } from 're2js';
import type { Pool } from '@granary/shared/postgres/pool';
import { searchWords } from '../../src/values/search-text';
import { compareDecimals } from '../../src/values/decimal';
import { parseInstant } from '../../src/values/instant';
import { networkOperatorHolds } from './network-reference';

/** What a test asks for, beside the JSON that says so: the language's meaning once more, as plainly as it goes. */
export type Meaning =
  | { all: Meaning[] }
  | { any: Meaning[] }
  | { none: Meaning[] }
  | { path: string[]; operator: string; operand: unknown };

export const missing = Symbol('missing');

const longText = 'x'.repeat(250);
/** The data sets that filters name, by their names. */
export const datasets: Record<'mixed' | 'texts' | 'times' | 'none', readonly unknown[]> = {
  mixed: [1, 2.5, -1, 1e20, 0.1, true, '10', 'true', null, 'k1', 'K2', 'é3', '10.0.0.0'],
  texts: ['', 'a', 'é', 'A', '😀', `${longText}abcdef`, `${longText}abcdeg`, `${longText}abcdéx`, 'k7', 'k1700'],
  times: [
    '2024-01-01T00:00:00Z',
    '2024-01-01',
    'soon',
    '1969-12-31T23:59:59.5Z',
    '2024-06-01 12:00:00-15:30',
    1704067200,
  ],
  none: [],
};

/** An operand that refers to the record one level up. */
export class Reference {
  constructor(readonly path: readonly string[]) {}
}

/** A join as a test asks for it. */
export interface JoinMeaning {
  alias: string;
  model: string;
  many: boolean;
  meaning: Meaning;
  /** The fields that are kept, or left out; undefined keeps all. */
  select: { keeps: 'named' | 'others'; fields: string[] } | undefined;
  joins: JoinMeaning[];
}

export interface Documents {
  documents: ReadonlyArray<Record<string, unknown>>;
  dates: ReadonlySet<string>;
}

/** A record with the members that joins add; `find` gives the documents of a collection in the order of their ids. */
export function withJoins(
  record: Record<string, unknown>,
  { select, joins }: Pick<JoinMeaning, 'select' | 'joins'>,
  find: (model: string) => Documents,
): Record<string, unknown> {
  const kept = Object.entries(record).filter(
    ([field]) => !select || select.fields.includes(field) === (select.keeps === 'named'),
  );
  const members = joins.map((join): [string, unknown] => {
    const { documents, dates } = find(join.model);
    const met = documents.filter((document) => holds(join.meaning, document, dates, record));
    const found = met.map((document) => withJoins(document, join, find));
    return [join.alias, join.many ? found : (found[0] ?? null)];
  });
  // A select can leave out what is joined; where it names what to keep, that means fields.
  const shown = members.filter(([alias]) => select?.keeps !== 'others' || !select.fields.includes(alias));
  return Object.fromEntries([...kept, ...shown]);
}

export function follow(record: unknown, path: readonly string[]): unknown {
  let value = record;
  for (const step of path) {
    if (Array.isArray(value))
      value = /^(0|[1-9]\d*)$/.test(step) && Number(step) < value.length ? value[Number(step)] : missing;
    else if (typeof value === 'object' && value !== null && Object.hasOwn(value, step)) {
      value = (value as Record<string, unknown>)[step];
    } else return missing;
  }
  return value;
}

/** `parent` is the record one level up, which operands of a join refer to. */
export function holds(meaning: Meaning, record: unknown, dates: ReadonlySet<string>, parent?: unknown): boolean {
  if ('all' in meaning) return meaning.all.every((part) => holds(part, record, dates, parent));
  if ('any' in meaning) return meaning.any.some((part) => holds(part, record, dates, parent));
  if ('none' in meaning) return !meaning.none.some((part) => holds(part, record, dates, parent));
  const { path, operator } = meaning;
  let { operand } = meaning;
  if (operand instanceof Reference) {
    operand = follow(parent, operand.path);
    if (operand === missing || operand === null) return false;
    if (operator === 'in') operand = Array.isArray(operand) ? operand.filter((element) => element !== null) : [];
  }
  const value = follow(record, path);
  return operatorHolds(operator, value, operand, dates.has(path.join('.')));
}

function operatorHolds(operator: string, value: unknown, operand: unknown, isDate: boolean): boolean {
  const isEmpty = value === missing || value === null;
  switch (operator) {
    case 'is':
      return operand === null ? isEmpty : value !== missing && same(value, operand, isDate);
    case 'isNot':
      return !operatorHolds('is', value, operand, isDate);
    case 'in':
      return (operand as unknown[]).some((one) => operatorHolds('is', value, one, isDate));
    case 'notIn':
      return !operatorHolds('in', value, operand, isDate);
    case 'isNull':
      return isEmpty === operand;
    case 'isNotNull':
      return isEmpty !== operand;
    case 'exists':
      return (value !== missing) === operand;
    case 'between': {
      const [from, to] = operand as [unknown, unknown];
      return operatorHolds('>=', value, from, isDate) && operatorHolds('<=', value, to, isDate);
    }
    case 'contains':
      if (typeof value === 'string') return typeof operand === 'string' && value.includes(operand);
      return Array.isArray(value) && value.some((element) => same(element, operand, false));
    case 'startsWith':
      return typeof value === 'string' && value.startsWith(operand as string);
    case 'endsWith':
      return typeof value === 'string' && value.endsWith(operand as string);
    case 'includesCaseInsensitive':
      return typeof value === 'string' && value.toLowerCase().includes((operand as string).toLowerCase());
    case 'startsWithCaseInsensitive':
      return typeof value === 'string' && value.toLowerCase().startsWith((operand as string).toLowerCase());
    case 'endsWithCaseInsensitive':
      return typeof value === 'string' && value.toLowerCase().endsWith((operand as string).toLowerCase());
    case 'regExpMatches':
      return typeof value === 'string' && remembered(operator, value, operand, () => matches(operand as string, value));
    case '$search': {
      const answer = searchAnswers.get(JSON.stringify([value === missing ? null : value, operand]));
      if (answer === undefined) throw new Error(`Postgres was not asked for ${operand as string}`);
      return answer;
    }
    case 'b64':
      return operatorHolds('is', value, Buffer.from(operand as string, 'base64url').toString(), isDate);
    case 'inDataset':
      return datasets[operand as keyof typeof datasets].some((one) => operatorHolds('is', value, one, isDate));
    case 'CIDR':
    case 'isLocalIp':
    case 'isExternalIp':
    case 'inCountry':
      return remembered(operator, value, operand, () => networkOperatorHolds(operator, value, operand));
    default: {
      const order = rangeOrder(value, operand, isDate);
      if (order === undefined) return false;
      if (operator === '<') return order < 0;
      if (operator === '<=') return order <= 0;
      if (operator === '>') return order > 0;
      return order >= 0;
    }
  }
}

/** What is slow to find out, by operator, operand and value. */
const answers = new Map<string, boolean>();

function remembered(operator: string, value: unknown, operand: unknown, find: () => boolean): boolean {
  if (typeof value !== 'string') return find();
  const key = `${operator}\0${JSON.stringify(operand)}\0${value}`;
  let answer = answers.get(key);
  if (answer === undefined) {
    if (answers.size >= 200_000) answers.clear();
    answers.set(key, (answer = find()));
  }
  return answer;
}

const matches = (expression: string, text: string): boolean => re2(expression).matcher(text).find();

/** An expression as it stands, or between slashes, with i for both cases. */
function re2(expression: string): RE2JS {
  const [, inner, flag] = /^\/(.*)\/(i?)$/s.exec(expression) ?? [];
  return RE2JS.compile(inner ?? expression, flag === 'i' ? RE2JS.CASE_INSENSITIVE : 0);
}

/** Whether the words of a value match a search, by the JSON text of both. */
const searchAnswers = new Map<string, boolean>();

/** Asks Postgres, which has no index then, about each search in each of the values. */
export async function learnSearches(
  pool: Pool,
  values: readonly unknown[],
  searches: readonly string[],
): Promise<void> {
  const { rows } = await pool.query<{ value: number; search: number; matches: boolean }>(
    `select v.n::int as value, q.n::int as search, coalesce(
       to_tsvector('english', search_text(v.text::jsonb)) @@ websearch_to_tsquery('english', q.text), false) as matches
     from unnest($1::text[]) with ordinality as v (text, n), unnest($2::text[]) with ordinality as q (text, n)`,
    [values.map((value) => JSON.stringify(value)), searches.map(searchWords)],
  );
  for (const { value, search, matches: answer } of rows) {
    searchAnswers.set(JSON.stringify([values[value - 1], searches[search - 1]]), answer);
  }
}

function same(value: unknown, operand: unknown, isDate: boolean): boolean {
  const instant = isDate && typeof operand === 'string' ? parseInstant(operand) : undefined;
  if (instant !== undefined) return typeof value === 'string' && parseInstant(value) === instant;
  return canonical(value) === canonical(operand);
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value === 0 ? 0 : value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${canonical(member)}`).join()}}`;
}

function rangeOrder(value: unknown, operand: unknown, isDate: boolean): number | undefined {
  if (typeof value !== typeof operand || typeof value === 'object') return undefined;
  const instant = isDate && typeof operand === 'string' ? parseInstant(operand) : undefined;
  if (instant !== undefined) {
    const own = parseInstant(value as string);
    return own === undefined ? undefined : Number(own) - Number(instant);
  }
  return scalarOrder(value, operand);
}

function scalarOrder(a: unknown, b: unknown): number {
  return typeof a === 'string' ? Buffer.compare(Buffer.from(a), Buffer.from(b as string)) : Number(a) - Number(b);
}

const kinds = ['string', 'number', 'boolean', 'array', 'object'];

function kindOf(value: unknown, instant: string | undefined): number {
  if (value === missing || value === null) return -1;
  // The instants of a date field come before other text.
  if (instant !== undefined) return 0;
  return 1 + (Array.isArray(value) ? 3 : kinds.indexOf(typeof value));
}

/**
 * The order of two values in a sort: negative, 0, positive. Undefined where the language leaves it open: between two
 * arrays, and between two objects.
 */
export function sortOrder(a: unknown, b: unknown, descending: boolean, isDate: boolean): number | undefined {
  const [instantOfA, instantOfB] = [a, b].map((value) =>
    isDate && typeof value === 'string' ? parseInstant(value) : undefined,
  );
  const [kindOfA, kindOfB] = [kindOf(a, instantOfA), kindOf(b, instantOfB)];
  if (kindOfA < 0 || kindOfB < 0) return kindOfB === kindOfA ? 0 : kindOfA < 0 ? 1 : -1;
  if (kindOfA !== kindOfB) return descending ? kindOfB - kindOfA : kindOfA - kindOfB;
  if (kindOfA >= 4) return canonical(a) === canonical(b) ? 0 : undefined;
  const order = kindOfA === 0 ? compareDecimals(instantOfA!, instantOfB!) : scalarOrder(a, b);
  return descending ? -order : order;
}
