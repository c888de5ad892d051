import { JsonNumber, toText, type JsonValue } from '@granary/shared/json/value';
import { suggestion } from '@granary/shared/near-names';
import { isDay, isTimed } from '../../values/instant';
import type { FieldType } from '../../values/field-type';
import type { Condition, FieldCondition, Path } from '../language/condition';
import { nearestOperator } from '../language/operators';
import { shortened } from '@granary/shared/shortened';
import { invalidQuery } from '../language/query-error';
import type { Relation } from './relation';

/** Characters of a value that a message shows. */
const shownLengthMax = 80;

const typeTexts: Readonly<Record<Exclude<FieldType, 'any'>, string>> = {
  string: 'a string',
  number: 'a number',
  integer: 'a number',
  boolean: 'true or false',
  date: 'an instant, RFC 3339 with an offset such as 2024-01-01T12:00:00Z',
  day: 'a day such as 2024-01-01, or an instant, RFC 3339 with an offset',
};

const kindTexts: Readonly<Record<Exclude<FieldType, 'any'>, string>> = {
  string: 'a string',
  number: 'a number',
  integer: 'a number',
  boolean: 'a boolean',
  date: 'a date',
  day: 'a date',
};

/**
 * Refuses what no value of a declared field can meet: values of another type, texts that are no instants, and members
 * of a scalar, which are misspelt operators. Throws INVALID_QUERY.
 */
export function assertOperands({ declared }: Pick<Relation, 'declared'>, find: Condition): void {
  if (declared.size === 0) return;
  if ('conditions' in find) {
    for (const one of find.conditions) assertOperands({ declared }, one);
    return;
  }
  const type = declared.get(find.path.join('.'));
  if (type === undefined) assertNoScalarAbove(declared, find.path);
  else if (type !== 'any') assertOperand(find, type);
}

function assertNoScalarAbove(declared: Relation['declared'], path: Path): void {
  for (let length = path.length - 1; length > 0; length -= 1) {
    const above = path.slice(0, length).join('.');
    const type = declared.get(above);
    if (type === undefined || type === 'any') continue;
    const near = path.length === length + 1 ? nearestOperator(path[length]!) : undefined;
    const hint = suggestion(near && `the operator ${near}`);
    throw invalidQuery(path.join('.'), `looks into ${above}, which is ${kindTexts[type]} and has no members${hint}`);
  }
}

function assertOperand(condition: FieldCondition, type: Exclude<FieldType, 'any'>): void {
  const field = condition.path.join('.');
  const isText = type === 'string' || type === 'date' || type === 'day';
  switch (condition.kind) {
    case 'is':
      return assertValue(field, condition.value, type);
    case 'in':
      for (const value of condition.values) assertValue(field, value, type);
      return;
    case 'range':
      return assertValue(field, condition.bound, type);
    case 'contains':
      if (isText && typeof condition.value === 'string') return;
      throw invalidQuery(field, `is ${kindTexts[type]}: only texts contain strings, and only arrays contain values`);
    case 'text':
    case 'search':
    case 'regexp':
    case 'network':
    case 'country':
      if (!isText) throw invalidQuery(field, `is ${kindTexts[type]}, and the operator compares text`);
      return;
    case 'empty':
    case 'exists':
    case 'reference':
    case 'dataset':
      // These ask whether there is a value, or compare with values that another record or a data set has.
      return;
  }
}

function assertValue(field: string, value: JsonValue, type: Exclude<FieldType, 'any'>): void {
  if (isOfType(value, type)) return;
  const shown = shortened(toText(value), shownLengthMax);
  throw invalidQuery(field, `must be compared with ${typeTexts[type]}, which ${shown} is not${hintOf(value, type)}`);
}

function isOfType(value: JsonValue, type: Exclude<FieldType, 'any'>): boolean {
  switch (type) {
    case 'string':
      return typeof value === 'string';
    case 'number':
    case 'integer':
      return value instanceof JsonNumber;
    case 'boolean':
      return typeof value === 'boolean';
    case 'date':
      return typeof value === 'string' && isTimed(value);
    case 'day':
      return typeof value === 'string' && (isDay(value) || isTimed(value));
  }
}

/** Suggests the instant that a text may have been meant for. */
function hintOf(value: JsonValue, type: FieldType): string {
  if (typeof value !== 'string' || (type !== 'date' && type !== 'day')) return '';
  if (isDay(value)) return `: write ${value}T00:00:00Z`;
  const withPlus = value.replace(/ (\d\d:\d\d)$/, '+$1');
  return withPlus !== value && isTimed(withPlus) ? ': in a URL + is a space, write %2B' : '';
}
