import { shortened } from './shortened';

/** The gRPC status names a service may answer with. */
export type StatusName =
  | 'INVALID_ARGUMENT'
  | 'UNAUTHENTICATED'
  | 'PERMISSION_DENIED'
  | 'NOT_FOUND'
  | 'ALREADY_EXISTS'
  | 'FAILED_PRECONDITION'
  | 'ABORTED'
  | 'OUT_OF_RANGE'
  | 'RESOURCE_EXHAUSTED'
  | 'UNIMPLEMENTED'
  | 'UNAVAILABLE'
  | 'DEADLINE_EXCEEDED'
  | 'CANCELLED'
  | 'INTERNAL';

export type ErrorDetails = Record<string, unknown>;

/**
 * The one error that may leave a service. `code` says what kind of failure it is to a machine on the wire, `reason`
 * which rule was broken (an UPPER_SNAKE domain constant that becomes the public `code`), `message` is text for a person
 * and may be shown to one, `details` is JSON. Any other error becomes INTERNAL. Only an INTERNAL error has a stack
 * trace: the others are answers, of which strangers may cause many, and a trace would be their largest cost.
 */
export class ServiceError extends Error {
  override readonly name = 'ServiceError';
  readonly details: ErrorDetails;
  /** Whether an INTERNAL error is in the log of a service already, in full and with the request id. */
  readonly isLogged: boolean;

  constructor(
    readonly code: StatusName,
    readonly reason: string,
    message: string,
    options: { details?: ErrorDetails; cause?: unknown; isLogged?: boolean } = {},
  ) {
    const stackTraceLimit = Error.stackTraceLimit;
    if (code !== 'INTERNAL') Error.stackTraceLimit = 0;
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.details = options.details ?? {};
    this.isLogged = options.isLogged ?? false;
  }
}

/**
 * Messages for each field path (`data[3].address.city`) that was wrong: the shape of `details` of a validation error.
 */
export type FieldMessages = Record<string, string[]>;

/** `message` is completed by the first of `fields`, as `withFirstDetail` says. */
export function invalid(message: string, fields: FieldMessages = {}, reason = 'VALIDATION_FAILED'): ServiceError {
  return new ServiceError('INVALID_ARGUMENT', reason, withFirstDetail(message, fields), { details: fields });
}

/**
 * Characters of a path or a message in a sentence: names in them are the caller's, and may be as long as the request.
 */
const pathLengthMax = 200;
const messageLengthMax = 500;

/**
 * A sentence that names the first detail, `The body is not valid: data[3].city is required`; as it is where it has that
 * already, or where there are no details.
 */
export function withFirstDetail(message: string, fields: FieldMessages): string {
  const [path] = Object.keys(fields);
  const detail = path === undefined ? undefined : fields[path]![0];
  if (path === undefined || detail === undefined || message.includes(detail)) return message;
  return `${message}: ${detailText(path, detail)}`;
}

/** A detail in words, `data[3].city is required`; a long path or message is cut. */
export function detailText(path: string, detail: string): string {
  // Some details are sentences of their own.
  const separator = /^\p{Lu}/u.test(detail) ? ': ' : ' ';
  const place = path === '' ? '' : `${shortened(path, pathLengthMax)}${separator}`;
  return place + shortened(detail, messageLengthMax);
}

export function notFound(reason: string, message: string): ServiceError {
  return new ServiceError('NOT_FOUND', reason, message);
}

export function conflict(reason: string, message: string, details: ErrorDetails = {}): ServiceError {
  return new ServiceError('ALREADY_EXISTS', reason, message, { details });
}

export function forbidden(message: string): ServiceError {
  return new ServiceError('PERMISSION_DENIED', 'FORBIDDEN', message);
}

export function notImplemented(what: string): ServiceError {
  return new ServiceError('UNIMPLEMENTED', 'NOT_IMPLEMENTED', `Not implemented yet: ${what}`);
}

export const isUnavailable = (error: unknown): boolean => error instanceof ServiceError && error.code === 'UNAVAILABLE';

export function unavailable(message: string, cause?: unknown): ServiceError {
  return new ServiceError('UNAVAILABLE', 'UNAVAILABLE', message, { cause });
}
