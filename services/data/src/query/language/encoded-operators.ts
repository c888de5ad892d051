import { isUtf8 } from 'node:buffer';
import type { JsonValue } from '@granary/shared/json/value';
import { textOf, type Operator } from './operator';
import { invalidQuery } from './query-error';

/** Equality with a text that the operand encodes. */
export const encodedOperators: readonly Operator[] = [
  {
    spellings: ['b64'],
    operand: 'text',
    parse: (path, operand, index) => ({ kind: 'is', path, value: textOfBase64(operand, index) }),
  },
];

/**
 * The text that base64 encodes (RFC 4648, section 4 or 5, with or without padding). Throws INVALID_QUERY for any other
 * operand, for bytes that are not UTF-8, and for U+0000, which no document holds.
 */
function textOfBase64(operand: JsonValue, location: string): string {
  const sent = textOf(operand, location).replaceAll('-', '+').replaceAll('_', '/');
  const bytes = Buffer.from(sent, 'base64');
  const canonical = bytes.toString('base64');
  // Buffer skips what is not base64.
  if (sent !== canonical && sent !== canonical.replace(/=+$/, '')) throw invalidQuery(location, 'is not valid base64');
  if (!isUtf8(bytes)) throw invalidQuery(location, 'does not encode UTF-8 text');
  if (bytes.includes(0)) throw invalidQuery(location, 'encodes U+0000, which no document holds');
  return bytes.toString('utf8');
}
