import { readFile } from 'node:fs/promises';
import { UsageError } from '../failure.ts';
import type { Terminal } from '../terminal/terminal.ts';

export const definitionHelp = 'JSON, @file, or - for stdin';

/** The JSON of an argument: as it stands, from `@file`, or from stdin for `-`. Throws UsageError. */
export async function jsonArgument(terminal: Terminal, argument: string): Promise<{ text: string; value: unknown }> {
  let text = argument;
  if (argument === '-') text = await terminal.readAll('JSON');
  else if (argument.startsWith('@')) {
    text = await readFile(argument.slice(1), 'utf8').catch((error: Error) => {
      throw new UsageError(error.message);
    });
  }
  try {
    return { text, value: JSON.parse(text) as unknown };
  } catch (error) {
    const source = argument === '-' ? 'stdin' : argument.startsWith('@') ? argument.slice(1) : 'The argument';
    throw new UsageError(`${source} is not JSON: ${(error as Error).message}`, `Give ${definitionHelp}.`);
  }
}

/** The same, of which an object is expected. `example` is one, as JSON. */
export async function objectArgument(
  terminal: Terminal,
  argument: string,
  example = '{"access_policy": {"read": "private"}}',
): Promise<{ text: string; value: Record<string, unknown> }> {
  const { text, value } = await jsonArgument(terminal, argument);
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
    return { text, value: value as Record<string, unknown> };
  }
  throw new UsageError('A JSON object is expected', `For example ${example}`);
}

/**
 * The JSON of a definition with its `name`; all else is as it was given. Throws UsageError where the definition has
 * another name.
 */
export async function namedDefinition(terminal: Terminal, argument: string, name: string): Promise<string> {
  const { text, value } = await objectArgument(terminal, argument);
  if (!Object.hasOwn(value, 'name')) return jsonWith(text, { name });
  if (value['name'] === name) return text;
  throw new UsageError(`The definition is that of ${JSON.stringify(value['name'])}, and not of "${name}"`);
}

/** The JSON text of an object with further members before its own, which stay as they are written. */
export function jsonWith(objectText: string, members: Record<string, unknown>): string {
  const first = JSON.stringify(members).slice(0, -1);
  const own = objectText.trim().slice(1);
  return `${first}${first === '{' || own.trimStart() === '}' ? '' : ','}${own}`;
}
