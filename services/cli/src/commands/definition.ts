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

/** The same, of which an object is expected. */
export async function definitionOf(terminal: Terminal, argument: string): Promise<Record<string, unknown>> {
  const { value } = await jsonArgument(terminal, argument);
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new UsageError('A JSON object is expected', 'For example {"access_policy": {"read": "private"}}');
}
