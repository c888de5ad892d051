import type { FilterGenerator } from './query-generator';
import type { Meaning } from './query-reference';
import type { Values } from './query-values';

/** A parameter of a URL as it is sent: a field, perhaps with an operator as its suffix. */
export interface UrlFilter {
  name: string;
  text: string;
  meaning: Meaning;
}

/** Operators by how the text of a URL is read for them. */
const readings = {
  values: ['is', 'isNot', '>', '>=', '<', '<=', 'contains'],
  lists: ['in', 'notIn'],
  pairs: ['between'],
  flags: ['isNull', 'isNotNull', 'exists', 'isLocalIp', 'isExternalIp'],
  texts: ['startsWith', 'endsWith', 'includesCaseInsensitive', 'startsWithCaseInsensitive', 'endsWithCaseInsensitive'],
  others: ['regExpMatches', 'b64', 'inDataset'],
  textLists: ['CIDR', 'inCountry'],
};
const spellings: Record<string, string[]> = {
  is: ['$eq', '$is'],
  isNot: ['$ne', '$isNot'],
  in: ['$in'],
  notIn: ['$nin', '$notIn'],
  '>': ['$gt', '$greaterThan'],
  '>=': ['$gte'],
  '<': ['$lt'],
  '<=': ['$lte', '$lessThanOrEqual'],
  between: ['$between'],
  contains: ['$contains', '$includes'],
  regExpMatches: ['$regex', '$regExpMatches'],
};

/** Filters as parameters of a URL over some fields; those in `texts` are read as text only. */
export function urlFilters(
  { random, pick }: Values,
  { operand }: FilterGenerator,
  fields: readonly string[],
  texts: ReadonlySet<string>,
): () => UrlFilter {
  const textOf = (value: unknown): string =>
    typeof value === 'string' && random(8) > 0 ? value : JSON.stringify(value ?? 'null');
  /** What a text may be: itself, and where nothing says that the field is text the JSON scalar that it reads as. */
  const valuesOf = (path: string, text: string): unknown[] => {
    if (texts.has(path)) return [text];
    try {
      const value: unknown = JSON.parse(text);
      return /^\s/.test(text) || (typeof value === 'object' && value !== null) ? [text] : [text, value];
    } catch {
      return [text];
    }
  };
  const anyOf = (path: string, operator: string, text: string): Meaning => {
    const isRange = /[<>]/.test(operator);
    const found = valuesOf(path, text).filter((value) => value !== null || !isRange);
    return { any: found.map((value) => ({ path: path.split('.'), operator, operand: value })) };
  };
  const noneOf = (meaning: Meaning): Meaning => ({ none: [meaning] });

  const sent = (operator: string, path: string): { text: string; meaning: Meaning } => {
    const steps = path.split('.');
    const given = operand(operator, path);
    if (readings.values.includes(operator)) {
      const text = textOf(typeof given === 'object' ? 'a' : given);
      return operator === 'isNot'
        ? { text, meaning: noneOf(anyOf(path, 'is', text)) }
        : { text, meaning: anyOf(path, operator, text) };
    }
    if (readings.lists.includes(operator)) {
      const list = (given as unknown[]).filter((one) => typeof one !== 'object').map(textOf);
      // An empty list is the text of one empty value.
      const all = list.length === 0 ? [''] : list;
      const isIn: Meaning = { path: steps, operator: 'in', operand: all.flatMap((text) => valuesOf(path, text)) };
      return { text: all.join(), meaning: operator === 'in' ? isIn : noneOf(isIn) };
    }
    if (readings.pairs.includes(operator)) {
      const [from, to] = (given as unknown[]).map(textOf) as [string, string];
      return { text: `${from},${to}`, meaning: { all: [anyOf(path, '>=', from), anyOf(path, '<=', to)] } };
    }
    const text = Array.isArray(given) ? given.join() : String(given);
    const taken = readings.textLists.includes(operator) ? text.split(',') : given;
    return { text, meaning: { path: steps, operator, operand: taken } };
  };

  const operators = Object.values(readings).flat();
  return () => {
    const path = pick(fields);
    const operator = pick(operators);
    let made = sent(operator, path);
    // A list without a member is no text.
    while (made.text === '' && readings.textLists.includes(operator)) made = sent(operator, path);
    const suffix = pick(spellings[operator] ?? [`$${operator}`]);
    return { name: operator === 'is' && random(2) === 0 ? path : `${path}.${suffix}`, ...made };
  };
}
