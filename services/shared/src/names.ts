/** The rules for names. The gateway checks names in paths and bodies, the data service before it stores them. */

export const appIdPattern = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/;
/** The rule of `appIdPattern`, for messages. */
export const appIdRule = 'must be 1 to 63 of A-Z a-z 0-9 _ -, and begin with a letter or digit';

/** The name of a collection, a view or a predefined query. */
export const namePattern = /^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$/;
/** The rule of `namePattern`, for messages. */
export const nameRule = 'must be 1 to 63 of A-Z a-z 0-9 _ -, and not begin with -';

export const indexNamePattern = /^(?!\.{1,2}$)[^\p{C}\p{Zl}\p{Zp}]{1,200}$/u;
/** The rule of `indexNamePattern`, for messages. */
export const indexNameRule = 'must be 1 to 200 printable characters, and not . or ..';
/**
 * The pattern of index names for the OpenAPI document. Generators of clients know neither `\\p` nor astral ranges nor
 * look-ahead, so it excludes control characters and line separators only.
 */
export const publishedIndexNamePattern = '^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]{1,200}$';

/**
 * Whether a text is a dot segment (RFC 3986, 3.3): browsers and other clients resolve it in a path, percent-encoded
 * too, so that `documents/%2E%2E` becomes the address of the collection.
 */
export const isDotSegment = (text: string): boolean => text === '.' || text === '..';
/** The rule that refuses a dot segment, for messages. */
export const dotSegmentRule = 'must not be . or .., which clients resolve as a part of the path';
