import type { IncomingHttpHeaders } from 'node:http';
import { listedEtags, namesCurrent } from '@granary/shared/http/etag';
import type { ByteRange } from '../stores/store';

/** The result of the conditions and the range of a GET, RFC 9110 §13 and §14. */
export type ConditionalResult =
  | { kind: 'whole' }
  | { kind: 'part'; range: ByteRange }
  | { kind: 'not-modified' }
  | { kind: 'precondition-failed' }
  | { kind: 'unsatisfiable' };

/** Evaluates If-Match, If-None-Match, then If-Range and Range (for GET only), in this order. */
export function evaluateConditions(
  method: string,
  headers: IncomingHttpHeaders,
  etag: string,
  sizeBytes: number,
): ConditionalResult {
  const ifMatch = headers['if-match'];
  if (ifMatch !== undefined && !listedEtags(ifMatch, etag).includes(etag)) return { kind: 'precondition-failed' };
  if (namesCurrent(headers['if-none-match'], etag)) return { kind: 'not-modified' };
  const range = headers.range;
  if (range === undefined || method !== 'GET') return { kind: 'whole' };
  // Last-Modified is never sent, so a date cannot match.
  const ifRange = headers['if-range'];
  if (ifRange !== undefined && ifRange !== etag) return { kind: 'whole' };
  return parseRange(range, sizeBytes);
}

/** One range of bytes. Several ranges, other units and malformed ones are ignored: the answer is the whole blob. */
function parseRange(text: string, sizeBytes: number): ConditionalResult {
  const match = /^bytes=\s*(\d{0,15})-(\d{0,15})\s*$/i.exec(text.trim());
  const [, first = '', last = ''] = match ?? [];
  if (!match || (first === '' && last === '')) return { kind: 'whole' };
  if (first === '') {
    const length = Math.min(Number(last), sizeBytes);
    return length === 0
      ? { kind: 'unsatisfiable' }
      : { kind: 'part', range: { start: sizeBytes - length, end: sizeBytes - 1 } };
  }
  const start = Number(first);
  const end = last === '' ? sizeBytes - 1 : Number(last);
  if (last !== '' && end < start) return { kind: 'whole' };
  if (start >= sizeBytes) return { kind: 'unsatisfiable' };
  return { kind: 'part', range: { start, end: Math.min(end, sizeBytes - 1) } };
}
