import type { ExportPageResponse } from '@granary/shared/gen/granary/data/v1/ExportPageResponse';
import { newCall, type Call } from '@granary/shared/rpc/types';
import type { Clients } from '../clients/clients';
import type { ExportRequest } from './export-request';

/** Time for a page, with its repetitions while a copy of the data service is replaced. */
const pageTimeoutMs = 30_000;

/**
 * The pages of an export, the next of which is read while the one before is sent. Rejects as the data service does:
 * COLLECTION_NOT_FOUND, INVALID_QUERY, LIMIT_EXCEEDED, CURSOR_AHEAD, CANCELLED.
 */
export async function* readPages(
  data: Pick<Clients['data'], 'exportPage'>,
  { appId, collection, find, select, hasHistory, hasDeleted, ...place }: ExportRequest,
  call: Pick<Call, 'requestId' | 'signal' | 'trace'>,
): AsyncGenerator<ExportPageResponse, undefined> {
  const same = { appId, collection, find, select, includeHistory: hasHistory, includeDeleted: hasDeleted };
  const read = (position: Parameters<typeof data.exportPage>[0]): Promise<ExportPageResponse> => {
    // Each page has a deadline of its own: that of the request would end a long export.
    const { requestId, signal, trace } = call;
    const page = data.exportPage(position, { ...newCall(requestId, pageTimeoutMs), signal, trace });
    // It may be waited for later.
    page.catch(() => {});
    return page;
  };
  const height = place.height?.toString();
  const begin = { ...same, after: place.after ?? null };
  let next: Promise<ExportPageResponse> | undefined = read(height === undefined ? begin : { ...begin, height });
  while (next) {
    const page: ExportPageResponse = await next;
    const { collectionNumber, last } = page;
    next = last ? read({ ...same, height: page.height, collectionNumber, after: last }) : undefined;
    yield page;
  }
  return undefined;
}
