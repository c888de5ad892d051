import type { HeaderDoc, Route } from '../pipeline/route';

/** The request header of routes whose answers are revalidated by their ETag. */
export const revalidationHeader: Readonly<Record<string, HeaderDoc>> = {
  'If-None-Match': { description: 'ETags, or `*`: 304 when the answer has one of them' },
};

export const etagHeader = { ETag: 'Changes with the answer, and with its compression' };

/** A page of records that the caller may have already: headers of the 200, and the 304. */
export const pageEtagHeader = { ETag: 'Changes with all that the page shows; the same in every compression' };
export const unchangedPage = {
  304: { description: 'The page is the one that `If-None-Match` names', headers: pageEtagHeader },
} as const;

/** The headers of an answer that follow from its status and from what its route takes: name → description. */
export function headersOf(status: string, { headers = {} }: Pick<Route, 'headers'>): Readonly<Record<string, string>> {
  return {
    ...(status === '201' && { Location: 'Path of what was created' }),
    ...(status === '202' && { Location: 'Path of the task' }),
    ...(status.startsWith('2') &&
      'Idempotency-Key' in headers && {
        'Idempotency-Replayed': '`true` where the request was answered before and changed nothing this time',
      }),
    ...((status === '429' || status === '503') && { 'Retry-After': 'Seconds after which to try again' }),
  };
}
