import { JsonNumber, toText, type JsonValue } from '@granary/shared/json/value';

/**
 * The JSON text of a top-level member of a body, its numbers as they were written: what goes on to a service that
 * reads it itself. Empty where the member is missing or null.
 */
export function memberText(tree: JsonValue, name: string): string {
  const member = tree instanceof Map ? (tree.get(name) ?? null) : null;
  return member === null ? '' : toText(member);
}

export function memberBytes(tree: JsonValue, name: string): Buffer {
  return Buffer.from(memberText(tree, name));
}

/** A member that is text, or a number as it was written. Empty where it is missing or null. */
export function textMember(tree: JsonValue, name: string): string {
  const member = tree instanceof Map ? (tree.get(name) ?? null) : null;
  if (member instanceof JsonNumber) return member.text;
  return typeof member === 'string' ? member : '';
}
