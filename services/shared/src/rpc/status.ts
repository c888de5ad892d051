import { Metadata, status, type ServiceError as GrpcError, type StatusObject } from '@grpc/grpc-js';
import { ServiceError, unavailable, type ErrorDetails, type StatusName } from '../errors';
import type { Logger } from '../logger';
import { fromPostgres } from '../postgres/errors';
import { isStorageFull } from '../health/storage-monitor';

const unreachable = 'A service cannot be reached';
const reasonKey = 'x-reason';
const detailsKey = 'x-details-bin';

/** The largest details that are sent; trailers count against the header limit of HTTP/2. */
const maxDetailsBytes = 6_000;

/**
 * Converts any error into a ServiceError. An error that is neither one nor a known error of Postgres is logged in full,
 * here and only here, and becomes INTERNAL with a fixed text.
 */
export function toServiceError(error: unknown, log: Logger, requestId: string, method: string): ServiceError {
  if (error instanceof ServiceError && (error.code !== 'INTERNAL' || error.isLogged)) return error;
  const translated = fromPostgres(error);
  if (translated) {
    // A full disk is logged once, not for each request, see health/storage-monitor.ts.
    if (!isStorageFull(translated))
      log.warn({ err: error, requestId, method, reason: translated.reason }, 'the database refused');
    return translated;
  }
  log.error({ err: error, requestId, method }, 'unexpected error');
  return new ServiceError('INTERNAL', 'INTERNAL', internalMessage, { cause: error, isLogged: true });
}

const internalMessage = 'Internal server error';

/** A ServiceError on the wire: in the status and trailers of a gRPC call, or in a frame of the multiplexer. */
export interface Failure {
  /** The number of the gRPC status. */
  code: number;
  message: string;
  reason: string;
  /** JSON. */
  details: Buffer;
}

export function toFailure(error: ServiceError): Failure {
  let details = Buffer.from(JSON.stringify(error.details));
  if (details.length > maxDetailsBytes) details = Buffer.from(JSON.stringify(firstDetails(error.details)));
  return { code: status[error.code], message: error.message, reason: error.reason, details };
}

export function fromFailure({ code, message, reason, details }: Failure): ServiceError {
  return new ServiceError((status[code] ?? 'INTERNAL') as StatusName, reason, message, {
    details: details.length > 0 ? (JSON.parse(details.toString()) as ErrorDetails) : {},
    // The service that sent an INTERNAL error logged it, see `toServiceError`.
    isLogged: status[code] === 'INTERNAL',
  });
}

/** A ServiceError as gRPC carries it: status, message, and reason and details in the trailers. */
export function toStatus(error: ServiceError): StatusObject {
  const { code, message, reason, details } = toFailure(error);
  const metadata = new Metadata();
  metadata.set(reasonKey, reason);
  metadata.set(detailsKey, details);
  return { code, details: message, metadata };
}

/** The first details, as many as fit, and how many were left out. */
function firstDetails(details: ErrorDetails): ErrorDetails {
  const kept: ErrorDetails = {};
  let left = maxDetailsBytes - 100;
  const entries = Object.entries(details);
  for (const [index, [key, value]] of entries.entries()) {
    left -= Buffer.byteLength(JSON.stringify([key, value]));
    if (left < 0) {
      kept['…'] = [`and ${entries.length - index} more`];
      break;
    }
    kept[key] = value;
  }
  return kept;
}

/**
 * The message of grpc-js for a stream that ended without a status: the connection or the server failed, not the call.
 */
const streamReset = /^Received RST_STREAM with code /;

/**
 * The inverse of `toStatus`, for clients. An error without a reason comes from the transport: a stream that was reset
 * or a connection that was closed is UNAVAILABLE, and the outcome of the call is unknown.
 */
export function fromStatus(error: GrpcError): ServiceError {
  const code = (status[error.code] ?? 'INTERNAL') as StatusName;
  const [reason] = error.metadata?.get(reasonKey) ?? [];
  const [details] = error.metadata?.get(detailsKey) ?? [];
  if (typeof reason === 'string') {
    const trailer = Buffer.isBuffer(details) ? details : Buffer.alloc(0);
    return fromFailure({ code: error.code, message: error.details, reason, details: trailer });
  }
  switch (code) {
    case 'DEADLINE_EXCEEDED':
      return new ServiceError(code, 'DEADLINE_EXCEEDED', 'The request took too long', { cause: error });
    case 'RESOURCE_EXHAUSTED':
      return new ServiceError(code, 'RESULT_TOO_LARGE', 'The result is too large', { cause: error });
    case 'CANCELLED':
      return new ServiceError(code, 'CANCELLED', 'The request was cancelled', { cause: error });
    case 'UNAVAILABLE':
      return unavailable(unreachable, error);
    case 'INTERNAL':
      if (streamReset.test(error.details)) return unavailable(unreachable, error);
      return new ServiceError('INTERNAL', 'INTERNAL', internalMessage, { cause: error });
    default:
      return new ServiceError('INTERNAL', 'INTERNAL', internalMessage, { cause: error });
  }
}
