import { isUtf8 } from 'node:buffer';
import { invalid, ServiceError } from '@granary/shared/errors';
import { malformedUrl } from '../errors/problem';

/**
 * The parameters of a query string, decoded as URLSearchParams does, but strictly: a repeated name, a
 * malformed percent-encoding and text that cannot be stored are refused. A Map, for the names come from users.
 */
export function parseQueryString(text: string): Map<string, string> {
  const parameters = new Map<string, string>();
  const isPlain = !/[%+\u0080-\uffff]/.test(text);
  const read = isPlain ? asItIs : decode;
  for (const part of (isPlain ? text : toUnicode(text)).split('&')) {
    if (part === '') continue;
    const equals = part.indexOf('=');
    const name = read(equals < 0 ? part : part.slice(0, equals));
    const value = equals < 0 ? '' : read(part.slice(equals + 1));
    if (parameters.has(name)) {
      const details = { [name]: ['Must be given only once'] };
      throw new ServiceError('INVALID_ARGUMENT', 'REPEATED_PARAMETER', 'A parameter is given twice', { details });
    }
    parameters.set(name, value);
  }
  return parameters;
}

/** Node gives the bytes of the request line as Latin-1; clients mean bytes beyond ASCII as UTF-8. */
function toUnicode(text: string): string {
  if (!/[\u0080-\uffff]/.test(text)) return text;
  const bytes = Buffer.from(text, 'latin1');
  if (!isUtf8(bytes)) throw malformedUrl();
  return bytes.toString('utf8');
}

const asItIs = (text: string): string => text;

function decode(text: string): string {
  let decoded: string;
  try {
    decoded = decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw malformedUrl();
  }
  if (decoded.includes('\0')) throw invalid('A parameter holds the character U+0000, which cannot be stored');
  return decoded;
}
