import { isUtf8 } from 'node:buffer';

/**
 * The text of a header as Node gives it, a byte in each character: its bytes as UTF-8 where they are valid UTF-8, else
 * as Latin-1. Clients send either; HTTP leaves open which.
 */
export function headerText(value: string): string {
  if (!/[\x80-\xff]/.test(value)) return value;
  const bytes = Buffer.from(value, 'latin1');
  return isUtf8(bytes) ? bytes.toString('utf8') : value;
}
