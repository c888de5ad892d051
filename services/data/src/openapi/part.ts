import { JsonNumber, type JsonValue } from '@granary/shared/json/value';

/** A value that can become JSON: what was read from a text, and plain objects and numbers. Members may be undefined. */
export type Part = JsonValue | number | undefined | readonly Part[] | { readonly [name: string]: Part };

export function toJson(part: Part): JsonValue {
  if (part === undefined || part === null) return null;
  if (typeof part === 'number') return new JsonNumber(String(part));
  if (typeof part !== 'object' || part instanceof JsonNumber || part instanceof Map) return part;
  if (Array.isArray(part)) return part.map(toJson);
  const members = Object.entries(part).filter(([, member]) => member !== undefined);
  return new Map(members.map(([name, member]) => [name, toJson(member)]));
}
