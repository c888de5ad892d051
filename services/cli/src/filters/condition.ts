import { UsageError } from '../failure.ts';
import {
  comparedOperand,
  listOperand,
  rangeOperand,
  scalarOperand,
  structureOperand,
  textOperand,
  type Typed,
} from './operand.ts';

/** A condition on one field. */
export interface Condition {
  /** The field: its name, or a path with dots. */
  path: string;
  /** As docs/guide/queries.md names it. */
  operator: string;
  /** JSON. */
  operand: string;
}

/** Names with such characters are left to filters in JSON. */
const form = /^\s*([^=<>!~^*]+?)\s*(>=|<=|!=|~=|\^=|\$=|\*=|=|>|<)\s*([^]*?)\s*$/;
/** The operator as URLs have it: `price.$gte=10`. */
const suffixed = /^(.+)\.\$([A-Za-z0-9]+)$/;

const examples = "For example 'year>=1900', 'title=Emma', 'shelf=A,B', 'year=1900..1950' or 'title~=^Em'.";

const operators: Record<string, { operator: string; operandOf: (typed: Typed) => string }> = {
  '>': { operator: 'gt', operandOf: comparedOperand },
  '>=': { operator: 'gte', operandOf: comparedOperand },
  '<': { operator: 'lt', operandOf: comparedOperand },
  '<=': { operator: 'lte', operandOf: comparedOperand },
  '~=': { operator: 'regExpMatches', operandOf: textOperand },
  '^=': { operator: 'startsWith', operandOf: textOperand },
  '$=': { operator: 'endsWith', operandOf: textOperand },
  '*=': { operator: 'contains', operandOf: comparedOperand },
};

/** Operators whose operand is a list, a range or a text, however it looks. */
const lists = ['in', 'nin', 'notIn', 'CIDR', 'cidr', 'inCountry'];
const ranges = ['between', 'betweenOp'];
const texts =
  'startsWith endsWith includesCaseInsensitive startsWithCaseInsensitive endsWithCaseInsensitive regExpMatches regex ' +
  'search b64 inDataset';

const others =
  'is eq isNot ne isNull isNotNull exists greaterThan gt greaterThanOrEqual gte lessThan lt lessThanOrEqual lte includes ' +
  'contains isLocalIp isExternalIp';

/**
 * Throws UsageError for an operator that is none. With a key the service refuses it; in a URL, where reads without one
 * have their filters, it would be the name of a field.
 */
export function checkOperator(path: string, operator: string): void {
  if ([...lists, ...ranges, ...texts.split(' '), ...others.split(' ')].includes(operator)) return;
  throw new UsageError(`"${path}.$${operator}": there is no operator $${operator}`, examples);
}

/** Reads a condition as a person types it: `year>=1900`. Throws UsageError. */
export function readCondition(argument: string): Condition {
  const [, path, sign, text] = form.exec(argument) ?? [];
  if (path === undefined || sign === undefined || text === undefined) {
    throw new UsageError(`"${argument}" is not a filter: a field, an operator and a value are expected`, examples);
  }
  const typed: Typed = { argument, before: `${path}${sign}`, text };
  const [, field, suffix] = suffixed.exec(path) ?? [];
  if (field !== undefined && suffix !== undefined) {
    if (sign !== '=') {
      throw new UsageError(`"${argument}" has two operators, $${suffix} and ${sign}`, `For example '${path}=10'.`);
    }
    return { path: field, operator: suffix, operand: suffixOperand(suffix, typed) };
  }
  if (sign === '=') return { path, ...equality(typed) };
  if (sign === '!=') return { path, ...inequality(typed) };
  const { operator, operandOf } = operators[sign]!;
  return { path, operator, operand: operandOf(typed) };
}

function equality(typed: Typed): Omit<Condition, 'path'> {
  if (typed.text === '') return { operator: 'is', operand: 'null' };
  const structure = structureOperand(typed);
  if (structure) return { operator: structure.isList ? 'in' : 'is', operand: structure.operand };
  const range = rangeOperand(typed);
  if (range !== undefined) return { operator: 'between', operand: range };
  const list = listOperand(typed);
  if (list !== undefined) return { operator: 'in', operand: list };
  return { operator: 'is', operand: scalarOperand(typed) };
}

function inequality(typed: Typed): Omit<Condition, 'path'> {
  const { operator, operand } = equality(typed);
  if (operator !== 'between') return { operator: operator === 'in' ? 'notIn' : 'isNot', operand };
  throw new UsageError(
    `"${typed.argument}": a range cannot be excluded in this way`,
    'Write the filter as JSON: \'{"not":[{"year":{"between":[1900,1950]}}]}\'.',
  );
}

function suffixOperand(suffix: string, typed: Typed): string {
  if (texts.split(' ').includes(suffix)) return textOperand(typed);
  const structure = structureOperand(typed)?.operand;
  if (structure !== undefined) return structure;
  if (lists.includes(suffix)) return listOperand(typed) ?? `[${scalarOperand(typed)}]`;
  if (!ranges.includes(suffix)) return scalarOperand(typed);
  const range = rangeOperand(typed) ?? listOperand(typed);
  if (range !== undefined) return range;
  throw new UsageError(`"${typed.argument}": a range has two ends`, `For example '${typed.before}1900..1950'.`);
}
