import type { Request, Response } from 'express';
import type { GatewayConfig } from '../config';
import { requestContextOf } from './request-context';
import { writeHead } from './send-answer';

const allowOrigin = 'Access-Control-Allow-Origin';

const allowedHeaders = [
  'X-App-Key',
  'Authorization',
  'X-API-Key',
  'X-Agent-Key',
  'X-User-Key',
  'X-Operator-Key',
  'X-App-Id',
  'X-Wallet-Address',
  'X-Timestamp',
  'X-Signature',
  'X-Pubkey',
  'Content-Type',
  'Idempotency-Key',
  'If-Match',
  'If-None-Match',
  'If-Modified-Since',
  'If-Range',
  'Range',
  'X-Blob-Metadata',
  'Upload-Offset',
  'Upload-Complete',
  'X-Request-Id',
  'Last-Event-ID',
  'X-PAYMENT',
  'PAYMENT-SIGNATURE',
  // Added by tracing libraries, HTTP clients and browsers that bypass their cache.
  'traceparent',
  'tracestate',
  'baggage',
  'X-Requested-With',
  'Cache-Control',
].join(', ');

const exposedHeaders = [
  'X-Request-Id',
  'ETag',
  'Content-Range',
  'Content-Disposition',
  'Accept-Ranges',
  'Retry-After',
  'Allow',
  'Location',
  'Idempotency-Replayed',
  'Link',
  'Upload-Offset',
  'Upload-Complete',
  'X-Granary-Height',
  'X-Granary-Omitted-Fields',
  'X-Granary-Hints',
  'X-PAYMENT-RESPONSE',
  'PAYMENT-REQUIRED',
  'PAYMENT-RESPONSE',
].join(', ');

const preflightAgeSeconds = '600';

/** The CORS headers of every answer to a request: names and values in turn. */
export function corsHeaders({ CORS_ORIGINS }: GatewayConfig): (request: Request) => readonly string[] {
  const exposed = ['Access-Control-Expose-Headers', exposedHeaders];
  if (CORS_ORIGINS === '*') {
    const anyOrigin = [allowOrigin, '*', ...exposed];
    return () => anyOrigin;
  }
  const origins = new Set(CORS_ORIGINS);
  return ({ headers: { origin } }) => {
    const allowed = origin !== undefined && origins.has(origin) ? [allowOrigin, origin, ...exposed] : [];
    return ['Vary', 'Origin', ...allowed];
  };
}

/** Answers OPTIONS, a CORS preflight or not. */
export function answerOptions(response: Response, allowedMethods: readonly string[]): void {
  const methods = allowedMethods.join(', ');
  const preflight = {
    'Access-Control-Allow-Methods': methods,
    'Access-Control-Allow-Headers': allowedHeaders,
    'Access-Control-Max-Age': preflightAgeSeconds,
  };
  const { headers } = requestContextOf(response);
  const isOriginAllowed = headers.some((text, index) => index % 2 === 0 && text === allowOrigin);
  writeHead(response, 204, { Allow: methods, ...(isOriginAllowed && preflight) });
  response.end();
}
