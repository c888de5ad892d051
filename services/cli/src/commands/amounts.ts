import { plainText } from '../exact-json.ts';
import type { Terminal } from '../terminal/terminal.ts';

/** An object whose members of these names are amounts: to a person they are shown with their unit. */
export function withUnit(terminal: Terminal, object: object, amounts: readonly string[]): object {
  if (!terminal.isForPeople) return object;
  const shown = (name: string, value: unknown) =>
    amounts.includes(name) && value !== null ? `${plainText(value)} utia` : value;
  return Object.fromEntries(Object.entries(object).map(([name, value]) => [name, shown(name, value)]));
}
