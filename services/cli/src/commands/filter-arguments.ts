import type { Filter } from '../filters/filter.ts';
import { UsageError } from '../failure.ts';
import type { Terminal } from '../terminal/terminal.ts';
import { jsonArgument } from './definition.ts';

export const filtersHelp = "conditions such as 'year>=1900', or a filter as JSON, @file, or - for stdin";

/** The filter of the arguments of a command, which documents have to meet all of. Throws UsageError. */
export async function filterOf(terminal: Terminal, args: readonly string[]): Promise<Filter> {
  const { readCondition } = await import('../filters/condition.ts');
  const { checkFilter } = await import('../filters/filter.ts');
  const conditions = [];
  const texts = [];
  for (const argument of args) {
    if (argument === '-' || argument.startsWith('@') || argument.trimStart().startsWith('{')) {
      const { text, value } = await jsonArgument(terminal, argument);
      checkFilter(value, argument);
      texts.push(text);
    } else conditions.push(readCondition(argument));
  }
  return { conditions, texts };
}

/** Throws UsageError where a filter stands in the place of the collection. */
export function checkCollection(name: string | undefined): void {
  if (name === undefined || !/[=<>!~^{]/.test(name)) return;
  throw new UsageError(`"${name}" stands where the collection is expected`, 'Name the collection before its filters.');
}

/** Names between commas. Throws UsageError for an empty one. */
export function fieldsArgument(option: string, text: string | undefined): string[] | undefined {
  if (text === undefined) return undefined;
  const fields = text.split(',').map((field) => field.trim());
  if (!fields.includes('')) return fields;
  throw new UsageError(`${option} "${text}" has an empty field`, `For example ${option} title,author.name.`);
}
