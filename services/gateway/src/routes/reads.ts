import { forbidden, ServiceError } from '@granary/shared/errors';
import type { PageResponse } from '@granary/shared/gen/granary/data/v1/PageResponse';
import type { Parameter } from '@granary/shared/gen/granary/data/v1/Parameter';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import { jsonBytes, type Answer } from '../http/answer';
import { mayReadPrivate, type AnyReader } from '../pipeline/access';
import type { GatewayContext } from '../pipeline/gateway-context';
import type { RouteRequest } from '../pipeline/route';
import { payForRead } from '../paying/paid-reads';
import { isUnpaid, priceIn } from '../paying/price';

/** A read by URL of a collection, a view or a predefined query: public and free, unless the data service refuses it. */
export async function read(
  gateway: GatewayContext,
  request: RouteRequest<'app_id', AnyReader, ReadonlyMap<string, string>>,
  name: string,
  send: (message: ReadRequest) => Promise<PageResponse>,
): Promise<Answer> {
  const { caller, path, query } = request;
  const parameters: Parameter[] = [];
  for (const [parameter, value] of query) parameters.push({ name: parameter, value });
  const mayRead = mayReadPrivate(caller, path.app_id);
  const ifNoneMatch = request.incoming.headers['if-none-match'];
  const message: ReadRequest = {
    appId: path.app_id,
    name,
    parameters,
    mayReadPrivate: mayRead,
    acceptsPrice: true,
    ...(ifNoneMatch !== undefined && { ifNoneMatch }),
  };
  const readFor = (paidUtia?: string) =>
    sendForPrice(send, paidUtia === undefined ? message : { ...message, paidUtia });
  let page: PageResponse;
  try {
    page = await readFor();
  } catch (error) {
    const isRefused =
      error instanceof ServiceError && (error.code === 'PERMISSION_DENIED' || error.code === 'UNAUTHENTICATED');
    // The service only refuses the caller; with a key, the error states what is wrong with it.
    if (!isRefused || caller.kind !== 'app') throw error;
    throw forbidden(
      caller.appId === path.app_id ? 'The key lacks the permission Read' : 'The key belongs to another app',
    );
  }
  const { json, etag, price } = page;
  if (price) return payForRead(gateway, request, price, readFor);
  const headers = { ETag: etag, Vary: 'Accept-Encoding' };
  return json.length === 0 ? { status: 304, body: undefined, headers } : jsonBytes(200, json, headers);
}

/** Data of the release before refuses a read that is not paid. */
async function sendForPrice(
  send: (message: ReadRequest) => Promise<PageResponse>,
  message: ReadRequest,
): Promise<PageResponse> {
  try {
    return await send(message);
  } catch (error) {
    if (!isUnpaid(error)) throw error;
    return { json: Buffer.alloc(0), etag: '', price: priceIn(error) };
  }
}
