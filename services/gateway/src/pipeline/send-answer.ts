import type { Request, Response } from 'express';
import { namesCurrent } from '@granary/shared/http/etag';
import { clientKeys } from '../admission/client-budget';
import type { Answer } from '../http/answer';
import { discardUnreadBody } from '../http/body';
import { etagOf, type ContentEncoding } from '../http/compression';
import type { GatewayContext } from './gateway-context';
import { requestContextOf } from './request-context';

/**
 * Sends the status and the headers, with the headers of every answer. Node processes a flat list fastest; headers that
 * were set on the response before remain, unless the list replaces them.
 */
export function writeHead(response: Response, status: number, headers: Record<string, string>): void {
  const list = [...requestContextOf(response).headers];
  for (const name in headers) list.push(name, headers[name]!);
  response.writeHead(status, list);
}

/** Sets the headers that `writeHead` would add, for a handler that writes the head of its answer itself. */
export function setCommonHeaders(response: Response): void {
  const { headers } = requestContextOf(response);
  for (let index = 0; index < headers.length; index += 2) response.setHeader(headers[index]!, headers[index + 1]!);
}

/**
 * Sends an answer, compressed if the client accepts that, or 304 if the client has it already. Throws OVERLOADED when
 * an answer that the client may not take at once does not fit the memory.
 */
export function sendAnswer(
  request: Request,
  response: Response,
  answer: Answer,
  { answers, compression }: Pick<GatewayContext, 'answers' | 'compression'>,
  clientAddress: string,
): void {
  const context = requestContextOf(response);
  discardUnreadBody(request, response);
  const headers: Record<string, string> = {
    'Cache-Control': context.isPrivate ? 'no-store' : 'no-cache',
    ...answer.headers,
  };
  let encoding: ContentEncoding | undefined;
  if (compression.covers(answer)) {
    headers['Vary'] = 'Accept-Encoding';
    encoding = compression.encodingFor(request.headers['accept-encoding']);
    if (encoding !== undefined && headers['ETag'] !== undefined) headers['ETag'] = etagOf(headers['ETag'], encoding);
  }
  if (answer.status === 304 || (headers['ETag'] !== undefined && isNotModified(request, answer, headers['ETag']))) {
    for (const name of bodyHeaders) delete headers[name];
    writeHead(response, 304, headers);
    response.end();
    return;
  }
  const body = request.method === 'HEAD' ? undefined : answer.body;
  const keys = clientKeys(context.appId, clientAddress);
  const held = body && answers.hold(request, response, { body, keys, isStreamed: encoding !== undefined });
  if (encoding !== undefined) headers['Content-Encoding'] = encoding;
  else if (answer.status !== 204) headers['Content-Length'] = String(answer.body?.length ?? 0);
  writeHead(response, answer.status, headers);
  if (body === undefined) response.end();
  else if (encoding !== undefined) compression.send(response, body, encoding);
  else if (held) held.send(body);
  else answers.sendSmall(request, response, body, keys);
}

/** Headers that describe a body, which a 304 does not have. */
const bodyHeaders = ['Content-Type', 'Content-Encoding'];

function isNotModified({ method, headers }: Request, { status }: Answer, etag: string): boolean {
  return status === 200 && (method === 'GET' || method === 'HEAD') && namesCurrent(headers['if-none-match'], etag);
}
