import { JsonNumber, type JsonValue } from './value';

/**
 * The JSON text of a value without spaces and with the members of objects in the order of their names, so that it does
 * not depend on how an object was written. `numberText` gives the text of a number.
 */
export function canonicalJson(value: JsonValue, numberText: (number: JsonNumber) => string): string {
  if (value instanceof JsonNumber) return numberText(value);
  if (Array.isArray(value)) return `[${value.map((item) => canonicalJson(item, numberText)).join(',')}]`;
  if (!(value instanceof Map)) return JSON.stringify(value);
  const members = [...value].sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${canonicalJson(member, numberText)}`).join(',')}}`;
}
