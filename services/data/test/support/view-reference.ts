import { follow, holds, missing, sortOrder, type Meaning } from './query-reference';
import { parseInstant } from '../../src/values/instant';

/** A document as it is visible, with the place of its latest version among all writes. */
export interface StoredDocument {
  document: Record<string, unknown>;
  place: number;
}

/** The documents of a collection in the order of their ids, and its fields that are dates. */
export interface Source {
  documents: readonly StoredDocument[];
  dates: ReadonlySet<string>;
}

export interface ViewJoinMeaning {
  alias: string;
  collection: string;
  isInner: boolean;
  /** A field of the joined document, and the path of a field of the row as it is before this join. */
  on: ReadonlyArray<{ path: string; to: string }>;
}

export interface ViewMeaning {
  base: string;
  joins: readonly ViewJoinMeaning[];
  meaning: Meaning;
  groups:
    { by: readonly string[]; aggregates: ReadonlyArray<{ alias: string; operator: string; path: string }> } | undefined;
  sort: ReadonlyArray<{ path: string; descending: boolean }>;
  limit: number | undefined;
}

/** A row with what decides its place where all else is equal: the place of its document, then the ids of all. */
interface Row {
  value: Record<string, unknown>;
  place: number;
  ids: readonly string[];
}

const steps = (path: string): string[] => path.split('.');
const at = (row: unknown, path: string): unknown => follow(row, steps(path));
const isEmpty = (value: unknown): boolean => value === missing || value === null;

/** The rows of a view over what is stored: the meaning of a view once more, as plainly as it goes. */
export function viewRecords(view: ViewMeaning, sources: ReadonlyMap<string, Source>): Array<Record<string, unknown>> {
  const dates = new Set(sources.get(view.base)!.dates);
  for (const { alias } of view.joins) for (const date of dates) if (steps(date)[0] === alias) dates.delete(date);
  let rows = sources
    .get(view.base)!
    .documents.map(({ document, place }): Row => ({ value: document, place, ids: [String(document['id'])] }));
  for (const join of view.joins) {
    rows = rows.flatMap((row) => partners(row, join, sources.get(join.collection)!));
    for (const date of sources.get(join.collection)!.dates) dates.add(`${join.alias}.${date}`);
  }
  const found = rows.filter(({ value }) => holds(view.meaning, value, dates));
  const records = view.groups ? grouped(view, view.groups, found, dates) : sorted(view, found, dates);
  return records.slice(0, view.limit);
}

function partners(row: Row, { alias, isInner, on }: ViewJoinMeaning, source: Source): Row[] {
  const met = source.documents.filter(({ document }) =>
    on.every(({ path, to }) => {
      const operand = at(row.value, to);
      if (isEmpty(operand)) return false;
      return holds({ path: steps(path), operator: 'is', operand }, document, source.dates);
    }),
  );
  const joined = met.map(({ document }) => ({
    value: { ...row.value, [alias]: document },
    place: row.place,
    ids: [...row.ids, String(document['id'])],
  }));
  if (joined.length > 0 || isInner) return joined;
  return [{ ...row, value: { ...row.value, [alias]: null }, ids: [...row.ids, ''] }];
}

const compareTexts = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));
const compareIds = (a: Row, b: Row): number =>
  a.ids.map((id, index) => compareTexts(id, b.ids[index]!)).find((order) => order !== 0) ?? 0;

function sorted({ sort }: ViewMeaning, rows: readonly Row[], dates: ReadonlySet<string>) {
  const last = sort.at(-1)?.descending ? -1 : 1;
  return [...rows]
    .sort((a, b) => {
      for (const { path, descending } of sort) {
        const order = sortOrder(at(a.value, path), at(b.value, path), descending, dates.has(path)) ?? 0;
        if (order !== 0) return order;
      }
      return last * compareIds(a, b);
    })
    .map(({ value }) => value);
}

function grouped(
  { sort }: ViewMeaning,
  { by, aggregates }: NonNullable<ViewMeaning['groups']>,
  rows: readonly Row[],
  dates: ReadonlySet<string>,
): Array<Record<string, unknown>> {
  const groups = new Map<string, Row[]>();
  if (by.length === 0) groups.set('', []);
  for (const row of rows) {
    const key = by.map((path) => keyOf(orNull(at(row.value, path)))).join();
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const sourceOf = new Map([
    ...by.map((path) => [path, path] as const),
    ...aggregates.map(({ alias, operator, path }) => [alias, /first|last|min|max/.test(operator) ? path : ''] as const),
  ]);
  const last = sort.at(-1)?.descending ?? false;
  const order = [...sort, ...by.map((path) => ({ path, descending: last }))];
  const columns = [...groups.values()].map((members) => {
    const values = by.map((path) => [path, orNull(at(members[0]!.value, path))] as const);
    return new Map([
      ...values,
      ...aggregates.map(({ alias, operator, path }) => [alias, aggregate(operator, path, members, dates)] as const),
    ]);
  });
  columns.sort((a, b) => {
    for (const { path, descending } of order) {
      const isDate = dates.has(sourceOf.get(path) ?? '');
      const [one, other] = [orNull(a.get(path)), orNull(b.get(path))];
      const between = sortOrder(one, other, descending, isDate) || sameInstant(one, other, descending);
      if (between !== 0) return between;
    }
    return 0;
  });
  return columns.map((values) => {
    const record: Record<string, unknown> = {};
    for (const [path, value] of values) put(record, steps(path), value);
    return record;
  });
}

/** Texts of one instant go by the text. */
const sameInstant = (a: unknown, b: unknown, descending: boolean): number =>
  typeof a === 'string' && typeof b === 'string' ? (descending ? -1 : 1) * compareTexts(a, b) : 0;

const orNull = (value: unknown): unknown => (value === missing || value === undefined ? null : value);
const keyOf = (value: unknown): string => JSON.stringify(value, (_, member: unknown) => (member === 0 ? 0 : member));

function put(record: Record<string, unknown>, path: readonly string[], value: unknown): void {
  const [first, ...rest] = path;
  if (rest.length === 0) record[first!] = value;
  else put((record[first!] ??= {}) as Record<string, unknown>, rest, value);
}

/** With 16 significant digits, as views print it, of a sum of quarters. */
function average(sum: number, count: number): number {
  let [numerator, denominator, exponent] = [BigInt(Math.abs(sum) * 4), 4n * BigInt(count), 0];
  if (numerator === 0n) return 0;
  for (; numerator / denominator < 10n ** 15n; exponent -= 1) numerator *= 10n;
  for (; numerator / denominator >= 10n ** 16n; exponent += 1) denominator *= 10n;
  const digits = (2n * numerator + denominator) / (2n * denominator);
  return Math.sign(sum) * Number(`${digits}e${exponent}`);
}

function aggregate(operator: string, path: string, rows: readonly Row[], dates: ReadonlySet<string>): unknown {
  if (path === '*') return rows.length;
  const isDate = dates.has(path);
  const values = rows.map(({ value }) => at(value, path)).filter((value) => !isEmpty(value));
  const numbers = values.filter((value): value is number => typeof value === 'number');
  const sum = numbers.reduce((total, number) => total + number, 0);
  const instantOf = (value: unknown) => (isDate && typeof value === 'string' ? parseInstant(value) : undefined);
  switch (operator) {
    case 'count':
      return values.length;
    case 'count_distinct':
      return new Set(values.map((value) => (instantOf(value) === undefined ? keyOf(value) : `at ${instantOf(value)}`)))
        .size;
    case 'sum':
      return sum;
    case 'avg':
      return numbers.length === 0 ? null : average(sum, numbers.length);
    case 'min':
    case 'max': {
      const ascending = [...values].sort((a, b) => sortOrder(a, b, false, isDate) || sameInstant(a, b, false));
      return orNull(operator === 'min' ? ascending[0] : ascending.at(-1));
    }
    default: {
      const placed = [...rows].sort((a, b) => a.place - b.place || compareIds(a, b));
      const chosen = operator === 'first' ? placed[0] : placed.at(-1);
      return chosen === undefined ? null : orNull(at(chosen.value, path));
    }
  }
}
