/** An error code of the API: the HTTP status that it comes with, and what it means. */
export interface ErrorCode {
  status: number;
  meaning: string;
}

/**
 * Every value of `code` in an error. A reason of a ServiceError that can reach a client has its entry here; the
 * OpenAPI document and docs/errors.md list the same.
 */
export const codes = {
  VALIDATION_FAILED: {
    status: 400,
    meaning: 'A field, parameter or header is missing or invalid; `details` maps each one to a list of messages.',
  },
  MALFORMED_JSON: { status: 400, meaning: 'The body is empty, or is not JSON in UTF-8.' },
  MALFORMED_CSV: {
    status: 400,
    meaning:
      'A line of a table that is imported is not CSV in UTF-8, or has more or fewer cells than there are columns.',
  },
  MALFORMED_URL: { status: 400, meaning: 'The URL holds a malformed percent-encoding.' },
  MALFORMED_REQUEST: { status: 400, meaning: 'The bytes on the connection are not an HTTP/1.1 request.' },
  REPEATED_PARAMETER: { status: 400, meaning: 'A query parameter is given more than once.' },
  INVALID_QUERY: { status: 400, meaning: 'A filter, selection, order or definition of a query or view is invalid.' },
  INVALID_CURSOR: {
    status: 400,
    meaning: 'The cursor belongs to another query, or to a view that was rebuilt since: start from the first page.',
  },
  CURSOR_AHEAD: { status: 400, meaning: 'The height is beyond the last commit of the app, which the message names.' },
  FIELD_NOT_INDEXED: {
    status: 400,
    meaning:
      'A public read filters or sorts by a field without an index, and `details` lists the indexed fields; ' +
      'or `$search` is used on a field without a full-text index.',
  },
  SCAN_LIMIT_EXCEEDED: {
    status: 400,
    meaning:
      'A read without a key would pass too many records that no index narrows, or took too long: the message names the ' +
      'missing index, or advises `count=none`.',
  },
  LIMIT_EXCEEDED: { status: 400, meaning: 'A limit on counts or complexity is exceeded; the message names it.' },
  UNAUTHENTICATED: { status: 401, meaning: 'The key or wallet signature is missing, unknown, revoked or expired.' },
  PAYMENT_REQUIRED: {
    status: 402,
    meaning:
      'The request costs what `details.amount_utia` says; `accepts` lists how it may be paid for, see docs/money/prices.md.',
  },
  PAYMENT_REFUSED: {
    status: 402,
    meaning:
      'The agent key or payment does not pay for the request: `details.reason` says why, to an x402 payment `error` too. ' +
      'Nothing was charged.',
  },
  FORBIDDEN: { status: 403, meaning: 'The key belongs to another app, or lacks the permission.' },
  FEED_NOT_SOLD: {
    status: 403,
    meaning:
      'Reads of the collection or the view have a price, and its changes are not sold: only a key with `Read` gets them.',
  },
  NOT_FOUND: { status: 404, meaning: 'No such route.' },
  APP_NOT_FOUND: { status: 404, meaning: 'No such app.' },
  COLLECTION_NOT_FOUND: { status: 404, meaning: 'No such collection.' },
  DOCUMENT_NOT_FOUND: { status: 404, meaning: 'No such document.' },
  VIEW_NOT_FOUND: { status: 404, meaning: 'No such view.' },
  QUERY_NOT_FOUND: { status: 404, meaning: 'No such predefined query, or no such version of it.' },
  DATASET_NOT_FOUND: { status: 404, meaning: 'No such data set.' },
  INDEX_NOT_FOUND: { status: 404, meaning: 'No such index.' },
  BLOB_NOT_FOUND: { status: 404, meaning: 'No such blob.' },
  KEY_NOT_FOUND: { status: 404, meaning: 'No such key.' },
  TASK_NOT_FOUND: { status: 404, meaning: 'No such task: the ticket is unknown or malformed.' },
  IMPORT_NOT_FOUND: { status: 404, meaning: 'No such import, or it has expired or was deleted.' },
  GRANT_NOT_FOUND: { status: 404, meaning: 'The wallet has no such grant.' },
  COMMIT_NOT_FOUND: { status: 404, meaning: 'No such commit.' },
  ADDRESS_NOT_FOUND: { status: 404, meaning: 'The wallet address in the path is not one.' },
  METHOD_NOT_ALLOWED: { status: 405, meaning: 'The route does not have this method; `Allow` lists those it has.' },
  REQUEST_TIMEOUT: { status: 408, meaning: 'The request took too long to arrive.' },
  ALREADY_EXISTS: {
    status: 409,
    meaning:
      'The name or the id is taken, of an index by another definition, of a query with its version; ' +
      'or the field has another full-text index.',
  },
  SIGNATURE_USED: {
    status: 409,
    meaning: 'The signature of the wallet has changed something already: sign the request again, with the time of now.',
  },
  IMPORT_OFFSET_MISMATCH: {
    status: 409,
    meaning:
      'The part of a file does not begin where the import is, or is not of the file that it began with; `details.offset` ' +
      'is where to go on.',
  },
  IMPORT_ENDED: {
    status: 409,
    meaning: 'The import has ended: `details.status` says whether it is completed or failed.',
  },
  REQUEST_IN_PROGRESS: { status: 409, meaning: 'A request with the same `Idempotency-Key` is still running.' },
  GRANT_MISSING: {
    status: 409,
    meaning: 'The chain has no grant of the wallet that covers this: send a MsgGrant first, see docs/money/grants.md.',
  },
  ENCRYPTION_CONFLICT: {
    status: 409,
    meaning:
      'A field cannot be encrypted, for documents, an index or a view use it; or the field is encrypted, which the ' +
      'request does not fit. See docs/encryption.md.',
  },
  UNIQUE_VIOLATION: {
    status: 409,
    meaning:
      'Another document has the same value of a unique index; `details` names the field. ' +
      'For a new unique index: stored documents have equal values, and `details` shows some.',
  },
  COLLECTION_NOT_EMPTY: {
    status: 409,
    meaning: 'The collection holds documents: delete it with `{"force": true}` in the body.',
  },
  COLLECTION_IN_USE: {
    status: 409,
    meaning: 'Views or predefined queries read the collection: delete it with `{"cascade": true}` in the body.',
  },
  LAST_ADMIN_KEY: {
    status: 409,
    meaning: 'No key with `Admin` would be left in the app, which only the operator may cause; nothing was changed.',
  },
  INDEX_IN_USE: {
    status: 409,
    meaning: 'The schema or a predefined query needs the index; `details.used_by` lists them: change them first.',
  },
  DOCUMENTS_DO_NOT_FIT: {
    status: 409,
    meaning:
      'Stored documents do not have the type that a schema or an index gives a field; `details` has their `count` and ' +
      'some `ids`. `force` in the body makes the change.',
  },
  FAUCET_MISSING: { status: 409, meaning: 'Only the simulated chain has a faucet, and this is a real one.' },
  LOCKED_BALANCE_DECREASE: { status: 409, meaning: 'The locked balance can only be increased; nothing was changed.' },
  PAYOUT_DESTINATION_MISSING: {
    status: 409,
    meaning: 'Neither the request nor the payout settings have an address to pay to.',
  },
  PAYOUT_BELOW_MINIMUM: {
    status: 409,
    meaning: 'The amount is below `min_payout` or below what the operator lets out; `details.minimum` is the smallest.',
  },
  PAYOUT_DESTINATION_REFUSED: {
    status: 409,
    meaning:
      'The chain has refused a payout to this address within the last hour; `details.until` is when it is tried again.',
  },
  INSUFFICIENT_FUNDS: {
    status: 409,
    meaning: 'The available balance is smaller than the amount; `details.available_balance` is what there is.',
  },
  VIEW_HAS_NO_CHANGES: {
    status: 409,
    meaning: 'The changes of the view are not kept: a live view can be followed once it has `"changes": true`.',
  },
  CURSOR_GONE: {
    status: 410,
    meaning:
      'The cursor is of another history of the app, from before a backup was restored: read the documents anew, and the ' +
      'feed from then on. Or the view was built again, or so much has changed in it that its changes from there on are ' +
      'not kept: follow it from 0 on.',
  },
  PRECONDITION_FAILED: { status: 412, meaning: '`If-Match` does not name the present version.' },
  LENGTH_REQUIRED: {
    status: 411,
    meaning: 'An upload that costs something needs a `Content-Length`: it is paid before it is read.',
  },
  PAYLOAD_TOO_LARGE: { status: 413, meaning: 'The body or blob is too large; `details.limit_bytes` is the limit.' },
  DOCUMENT_TOO_LARGE: { status: 413, meaning: 'A document is larger than 1 MiB.' },
  SKILLS_TOO_LARGE: { status: 413, meaning: "The owner's part of the skills document is larger than 256 KiB." },
  RESULT_TOO_LARGE: {
    status: 413,
    meaning:
      'The result is larger than 32 MiB, or a join gives a record more than 1,000 others: ask for less at a time.',
  },
  UNSUPPORTED_MEDIA_TYPE: {
    status: 415,
    meaning: 'The content type is not one that the route takes, or the body is compressed.',
  },
  RANGE_NOT_SATISFIABLE: { status: 416, meaning: 'The range starts beyond the end of the blob.' },
  SCHEMA_VIOLATION: {
    status: 422,
    meaning: 'A document violates the schema of its collection; `details` maps paths like `data[3].city` to messages.',
  },
  IDEMPOTENCY_KEY_REUSED: { status: 422, meaning: 'The `Idempotency-Key` was used with other content.' },
  TOO_MANY_ERRORS: {
    status: 422,
    meaning: 'More than 10,000 records of a file that is imported failed; those before the last one are stored.',
  },
  TOO_MANY_REQUESTS: {
    status: 429,
    meaning: 'Too many requests of this app are waiting, or it used too many idempotency keys; see `Retry-After`.',
  },
  TOO_MANY_JOBS: { status: 429, meaning: 'Too many view refreshes and index builds of this app are waiting.' },
  TOO_MANY_IMPORTS: { status: 429, meaning: '100 imports of the app have not ended: end or delete some.' },
  TOO_MANY_STREAMS: {
    status: 429,
    meaning: 'Too many feeds of an app, a key or an address are open; `details.limit` names the limit.',
  },
  TOO_MANY_FILTERS: {
    status: 429,
    meaning:
      'The open feeds of a collection have too many different filters that no equality narrows, or those of an app too ' +
      'many selections; `details.limit` says which. Filter by the value of a field.',
  },
  HEADERS_TOO_LARGE: { status: 431, meaning: 'The request line and headers are larger than 16 KiB.' },
  INTERNAL: { status: 500, meaning: 'A bug in the service; report it with the `X-Request-Id`.' },
  NOT_IMPLEMENTED: { status: 501, meaning: 'Named by the interface, and not implemented yet.' },
  UNAVAILABLE: { status: 503, meaning: 'A service or database that is needed is down or busy; see `Retry-After`.' },
  ENCRYPTION_UNAVAILABLE: { status: 503, meaning: 'The service has no key for encrypted fields.' },
  OVERLOADED: { status: 503, meaning: 'The server is overloaded; see `Retry-After`.' },
  PAYMENT_PENDING: {
    status: 503,
    meaning:
      'No block has the payment of a read yet. The same request with the same payment is answered once one has it, and costs ' +
      'nothing more.',
  },
  CANCELLED: { status: 503, meaning: 'The request was cancelled because the client disconnected.' },
  DEADLINE_EXCEEDED: { status: 504, meaning: 'The request took longer than its deadline.' },
  STORAGE_FULL: {
    status: 507,
    meaning: 'The server has no room for writes. Nothing was changed; reads go on. Retry later.',
  },
} as const satisfies Record<string, ErrorCode>;

export type Code = keyof typeof codes;

export function isCode(reason: string): reason is Code {
  return Object.hasOwn(codes, reason);
}
