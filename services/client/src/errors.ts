/** The codes with which the service refuses a request, which `docs/errors.md` explains. A newer one may have more. */
export type ServiceCode =
  | 'VALIDATION_FAILED'
  | 'MALFORMED_JSON'
  | 'MALFORMED_CSV'
  | 'MALFORMED_URL'
  | 'MALFORMED_REQUEST'
  | 'REPEATED_PARAMETER'
  | 'INVALID_QUERY'
  | 'INVALID_CURSOR'
  | 'CURSOR_AHEAD'
  | 'FIELD_NOT_INDEXED'
  | 'SCAN_LIMIT_EXCEEDED'
  | 'LIMIT_EXCEEDED'
  | 'UNAUTHENTICATED'
  | 'PAYMENT_REQUIRED'
  | 'PAYMENT_REFUSED'
  | 'FORBIDDEN'
  | 'FEED_NOT_SOLD'
  | 'NOT_FOUND'
  | 'APP_NOT_FOUND'
  | 'COLLECTION_NOT_FOUND'
  | 'DOCUMENT_NOT_FOUND'
  | 'VIEW_NOT_FOUND'
  | 'QUERY_NOT_FOUND'
  | 'DATASET_NOT_FOUND'
  | 'INDEX_NOT_FOUND'
  | 'BLOB_NOT_FOUND'
  | 'KEY_NOT_FOUND'
  | 'TASK_NOT_FOUND'
  | 'IMPORT_NOT_FOUND'
  | 'GRANT_NOT_FOUND'
  | 'COMMIT_NOT_FOUND'
  | 'ADDRESS_NOT_FOUND'
  | 'METHOD_NOT_ALLOWED'
  | 'REQUEST_TIMEOUT'
  | 'ALREADY_EXISTS'
  | 'SIGNATURE_USED'
  | 'IMPORT_OFFSET_MISMATCH'
  | 'IMPORT_ENDED'
  | 'REQUEST_IN_PROGRESS'
  | 'GRANT_MISSING'
  | 'ENCRYPTION_CONFLICT'
  | 'UNIQUE_VIOLATION'
  | 'COLLECTION_NOT_EMPTY'
  | 'COLLECTION_IN_USE'
  | 'LAST_ADMIN_KEY'
  | 'INDEX_IN_USE'
  | 'DOCUMENTS_DO_NOT_FIT'
  | 'FAUCET_MISSING'
  | 'LOCKED_BALANCE_DECREASE'
  | 'PAYOUT_DESTINATION_MISSING'
  | 'PAYOUT_BELOW_MINIMUM'
  | 'PAYOUT_DESTINATION_REFUSED'
  | 'INSUFFICIENT_FUNDS'
  | 'VIEW_HAS_NO_CHANGES'
  | 'CURSOR_GONE'
  | 'PRECONDITION_FAILED'
  | 'LENGTH_REQUIRED'
  | 'PAYLOAD_TOO_LARGE'
  | 'DOCUMENT_TOO_LARGE'
  | 'SKILLS_TOO_LARGE'
  | 'RESULT_TOO_LARGE'
  | 'UNSUPPORTED_MEDIA_TYPE'
  | 'RANGE_NOT_SATISFIABLE'
  | 'SCHEMA_VIOLATION'
  | 'IDEMPOTENCY_KEY_REUSED'
  | 'TOO_MANY_ERRORS'
  | 'TOO_MANY_REQUESTS'
  | 'TOO_MANY_JOBS'
  | 'TOO_MANY_IMPORTS'
  | 'TOO_MANY_STREAMS'
  | 'TOO_MANY_FILTERS'
  | 'HEADERS_TOO_LARGE'
  | 'INTERNAL'
  | 'NOT_IMPLEMENTED'
  | 'UNAVAILABLE'
  | 'ENCRYPTION_UNAVAILABLE'
  | 'OVERLOADED'
  | 'PAYMENT_PENDING'
  | 'CANCELLED'
  | 'DEADLINE_EXCEEDED'
  | 'STORAGE_FULL';

/** The codes of what the client itself finds out. */
export type ClientCode =
  /** The service could not be reached, or the connection broke off. */
  | 'NETWORK_ERROR'
  /** There was no answer within the time that the call may take. */
  | 'TIMEOUT'
  /** The answer is not one of Granary: the URL may be that of something else. */
  | 'INVALID_ANSWER'
  /** The service is of a release that has no such call. */
  | 'NOT_SUPPORTED'
  /** The work of a task failed. */
  | 'TASK_FAILED';

export type ErrorCode = ServiceCode | ClientCode;

export interface ErrorFields {
  code: ErrorCode;
  /** HTTP status; 0 where there was no answer. */
  status?: number;
  /** The mistakes, by field or parameter; for some codes other members, which `docs/errors.md` names. */
  details?: Record<string, unknown>;
  /** Names the request in the log of the service. */
  requestId?: string | undefined;
  /** When the service wants the request again, in milliseconds. */
  retryAfterMs?: number | undefined;
  /** How a request may be paid for, as the service offers it: elements of `accepts` of x402. */
  offers?: readonly PaymentOffer[];
  cause?: unknown;
}

/** One way to pay for a request, see https://www.x402.org. */
export interface PaymentOffer {
  scheme: string;
  network: string;
  asset: string;
  payTo: string;
  [member: string]: unknown;
}

/** Every error of this package, except that of a signal that ends a call: that is thrown as it is. */
export class GranaryError extends Error {
  override readonly name = 'GranaryError';
  readonly code: ErrorCode;
  readonly status: number;
  readonly details: Record<string, unknown>;
  readonly requestId: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly offers: readonly PaymentOffer[];

  constructor(message: string, fields: ErrorFields) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.code = fields.code;
    this.status = fields.status ?? 0;
    this.details = fields.details ?? {};
    this.requestId = fields.requestId;
    this.retryAfterMs = fields.retryAfterMs;
    this.offers = fields.offers ?? [];
  }
}

/** Whether an error has this code. */
export const hasCode = (error: unknown, code: ErrorCode): error is GranaryError =>
  error instanceof GranaryError && error.code === code;

const passingStatuses = [429, 502, 503, 504];

/** Whether the same request may succeed later: the network or the service is down or busy. */
export const isPassing = (error: unknown): error is GranaryError =>
  error instanceof GranaryError &&
  (error.code === 'NETWORK_ERROR' ||
    error.code === 'TIMEOUT' ||
    error.code === 'REQUEST_IN_PROGRESS' ||
    error.code === 'PAYMENT_PENDING' ||
    error.code === 'REQUEST_TIMEOUT' ||
    passingStatuses.includes(error.status));
