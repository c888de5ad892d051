import { JsonNumber, type JsonValue } from '@granary/shared/json/value';
import { and, type Condition, type Path } from '../query/language/condition';
import { canonicalText } from '../values/canonical';

/** A field, and the text of one value of it. */
export interface FilterKey {
  path: Path;
  text: string;
}

/**
 * A filter by the values of fields that it asks for. A document that matches it has one of these values, so that of
 * many filters those that may match are found by a look-up.
 */
export interface KeyFilter {
  keys: readonly FilterKey[];
  /** What must hold besides; undefined where a value alone decides. */
  rest: Condition | undefined;
}

/** Values of one filter, at most; one with more is evaluated instead. */
const keysMax = 64;
/** Characters of a value, at most. */
const valueLengthMax = 256;

/**
 * The keys of a filter; undefined where it does not ask for the equality of a field with a scalar. Dates compare as
 * instants, and their equality is evaluated.
 */
export function keyFilterOf(condition: Condition, dates: ReadonlySet<string>): KeyFilter | undefined {
  const filter = filterOf(condition, dates);
  return filter && filter.keys.length <= keysMax ? filter : undefined;
}

function filterOf(condition: Condition, dates: ReadonlySet<string>): KeyFilter | undefined {
  switch (condition.kind) {
    case 'is':
      return keysOf(condition.path, [condition.value], dates);
    case 'in':
      return keysOf(condition.path, condition.values, dates);
    case 'and':
      return ofAll(condition.conditions, dates);
    case 'or':
      return ofAny(condition, condition.conditions, dates);
    default:
      return undefined;
  }
}

function keysOf(path: Path, values: readonly JsonValue[], dates: ReadonlySet<string>): KeyFilter | undefined {
  if (values.length === 0 || dates.has(path.join('.')) || !values.every(isKey)) return undefined;
  return { keys: values.map((value) => ({ path, text: canonicalText(value, false) })), rest: undefined };
}

/** Whether equality with a value is that of texts. */
const isKey = (value: JsonValue): boolean =>
  typeof value === 'boolean' ||
  value instanceof JsonNumber ||
  (typeof value === 'string' && value.length <= valueLengthMax);

/** The keys of the first condition that has some; the others must hold besides. */
function ofAll(conditions: readonly Condition[], dates: ReadonlySet<string>): KeyFilter | undefined {
  for (const [index, condition] of conditions.entries()) {
    const filter = filterOf(condition, dates);
    if (!filter) continue;
    const others = conditions.filter((_, other) => other !== index);
    const rest = filter.rest ? [filter.rest, ...others] : others;
    return { keys: filter.keys, rest: rest.length === 0 ? undefined : and(...rest) };
  }
  return undefined;
}

/** The keys of all conditions. Where one of them asks for more, the whole `condition` is evaluated besides. */
function ofAny(
  condition: Condition,
  conditions: readonly Condition[],
  dates: ReadonlySet<string>,
): KeyFilter | undefined {
  const filters = conditions.map((one) => filterOf(one, dates));
  if (filters.length === 0 || !filters.every((filter) => filter !== undefined)) return undefined;
  const isDecided = filters.every(({ rest }) => rest === undefined);
  return { keys: filters.flatMap(({ keys }) => keys), rest: isDecided ? undefined : condition };
}
