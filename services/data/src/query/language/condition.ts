import { toText, type JsonNumber, type JsonValue } from '@granary/shared/json/value';
import type { DatasetTable } from '../../catalog/dataset';
import type { Regexp } from './regexp/regexp';

export type Path = readonly string[];
/** A bound of a range, which is compared with values of its own type only. */
export type Scalar = string | JsonNumber | boolean;

export type Comparison = '<' | '<=' | '>' | '>=';

export type TextMatch =
  'startsWith' | 'endsWith' | 'includesCaseInsensitive' | 'startsWithCaseInsensitive' | 'endsWithCaseInsensitive';

/**
 * A condition on the field at a path. One kind for each way to compile it; plain data, for cursors contain its digest.
 */
export type FieldCondition =
  | { kind: 'is'; path: Path; value: JsonValue }
  | { kind: 'in'; path: Path; values: readonly JsonValue[] }
  /** Missing or null. */
  | { kind: 'empty'; path: Path }
  | { kind: 'exists'; path: Path }
  | { kind: 'range'; path: Path; comparison: Comparison; bound: Scalar }
  | { kind: 'contains'; path: Path; value: JsonValue }
  | { kind: 'text'; path: Path; match: TextMatch; value: string }
  | { kind: 'search'; path: Path; search: string }
  | { kind: 'regexp'; path: Path; regexp: Regexp }
  /** An address that lies in one of the networks, or in none of them. */
  | { kind: 'network'; path: Path; networks: readonly string[]; isWithin: boolean }
  /** An address in one of the countries. */
  | { kind: 'country'; path: Path; countries: readonly string[] }
  /** One of the values of a data set. Its table is known once references are resolved. */
  | { kind: 'dataset'; path: Path; name: string; table: DatasetTable | undefined }
  /** A comparison with the field `to` of the record one level up, `in` with the elements of the array there. */
  | { kind: 'reference'; path: Path; comparison: 'is' | 'in' | Comparison; to: Path };

/** A parsed `find`. Each condition is true or false for every record. */
export type Condition = { kind: 'and' | 'or' | 'none'; conditions: readonly Condition[] } | FieldCondition;

/** The conditions of one kind. */
export type ConditionOf<Kind extends Condition['kind']> = Extract<Condition, { kind: Kind }>;

export const all: Condition = { kind: 'and', conditions: [] };
// One condition stands for itself, so that what is fixed by an equality is seen to be.
export const and = (...conditions: Condition[]): Condition =>
  conditions.length === 1 ? conditions[0]! : { kind: 'and', conditions };
export const or = (...conditions: Condition[]): Condition =>
  conditions.length === 1 ? conditions[0]! : { kind: 'or', conditions };
export const not = (condition: Condition): Condition => ({ kind: 'none', conditions: [condition] });

/** The paths that a condition looks at, once for each place where it does. */
export const pathsOf = (condition: Condition): Path[] =>
  'conditions' in condition ? condition.conditions.flatMap(pathsOf) : [condition.path];

/** Whether a condition holds for every record, whatever is in it. */
export const isAll = (condition: Condition): boolean => condition.kind === 'and' && condition.conditions.every(isAll);

/** Tells a condition from others: the same text for the same condition. JSON has nothing of what is in a Map. */
export const conditionText = (condition: Condition): string =>
  condition.kind === 'is' && typeof condition.value === 'string'
    ? JSON.stringify(condition)
    : JSON.stringify(condition, (_, value: unknown) => (value instanceof Map ? { map: toText(value) } : value));
