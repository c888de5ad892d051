import { parseExact, plainText } from '../exact-json.ts';
import { UsageError } from '../failure.ts';
import { checkOperator, type Condition } from './condition.ts';

/** Conditions and filters that a document has to meet, all of them. */
export interface Filter {
  conditions: readonly Condition[];
  /** Whole filters, as JSON. */
  texts: readonly string[];
}

/** Throws UsageError for JSON that is no filter. `argument` is named then. */
export function checkFilter(value: unknown, argument: string): void {
  const example = 'For example \'{"or":[{"shelf":"A"},{"year":{"lt":1900}}]}\'.';
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new UsageError(`"${argument}" is not a filter: an object of JSON is expected`, example);
  }
  if (Object.keys(value).length === 0) {
    throw new UsageError(`"${argument}" is an empty filter: leave it out to have everything`, example);
  }
}

const conditionText = ({ path, operator, operand }: Condition): string =>
  `{${JSON.stringify(`${path}.$${operator}`)}:${operand}}`;

/** The filter as JSON, with the digits as they were typed; undefined where everything meets it. */
export function filterText({ conditions, texts }: Filter): string | undefined {
  const parts = [...conditions.map(conditionText), ...texts];
  return parts.length < 2 ? parts[0] : `{"and":[${parts.join(',')}]}`;
}

/** The same, of which documents that are deleted softly are left out, unless the filter itself says which it wants. */
export function presentFilterText(filter: Filter): string {
  const saysItself =
    filter.conditions.some(({ path }) => path === 'deleted') ||
    filter.texts.some((text) => namesDeleted(JSON.parse(text)));
  const present: Condition = { path: 'deleted', operator: 'isNot', operand: 'true' };
  return filterText(saysItself ? filter : { ...filter, conditions: [...filter.conditions, present] })!;
}

/** Whether a filter has a condition on `deleted` itself, not on a member of that name within a field. */
function namesDeleted(filter: unknown): boolean {
  if (typeof filter !== 'object' || filter === null) return false;
  return Object.entries(filter).some(([name, value]) => {
    if (/^deleted(\.\$\w+)?$/.test(name)) return true;
    return /^\$?(and|or|not)$/.test(name) && [value].flat().some(namesDeleted);
  });
}

/** The filter as the client makes the parameters of a public read of it: in a URL digits are texts anyway. */
export function publicFilter({ conditions, texts }: Filter): { and: object[] } {
  for (const { path, operator } of conditions) checkOperator(path, operator);
  return {
    and: [
      ...conditions.map(({ path, operator, operand }) => ({
        [path]: { [operator]: operator === 'between' ? withDigits(operand) : publicOperand(operand) },
      })),
      ...texts.map((text) => withDigits(text) as object),
    ],
  };
}

/** In a URL a list of numbers stands without brackets; in brackets its digits would be texts. */
const publicOperand = (operand: string): unknown =>
  /^\[[-+.\deE,\s]+\]$/.test(operand) ? operand.slice(1, -1) : withDigits(operand);

/** A value in which a number that JavaScript would change is a text of its digits. */
const withDigits = (json: string): unknown =>
  JSON.parse(
    JSON.stringify(parseExact(json), (_, value: unknown) => (typeof value === 'string' ? plainText(value) : value)),
  ) as unknown;

const bareValue = /^\[?(-?\d[^,\]]*|true|false)/;

/** A hint for a filter that nothing meets: values without quotes are no texts. `except`: fields left out. */
export function typeHint({ conditions }: Filter, except: readonly string[]): string | undefined {
  const bare = conditions.filter(({ path, operand }) => bareValue.test(operand) && !except.includes(path));
  const fields = [...new Set(bare.map(({ path }) => path))].filter((path) => path !== 'deleted');
  if (fields.length === 0) return undefined;
  const [, value] = bareValue.exec(bare[0]!.operand) ?? [];
  const were = fields.length === 1 ? 'was' : 'were';
  const example = `'${fields[0]}="${value}"'`;
  return `${fields.join(', ')} ${were} compared by type: texts that look like numbers are put into quotes, as in ${example}`;
}
