/** What names may look like. The gateway checks them in paths and bodies, the data service before it stores them. */

export const appIdPattern = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/;
/** The rule of `appIdPattern`, for messages. */
export const appIdRule = 'must be 1 to 63 of A-Z a-z 0-9 _ -, and begin with a letter or digit';

/** Of a collection, a view or a predefined query. */
export const namePattern = /^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$/;
/** The rule of `namePattern`, for messages. */
export const nameRule = 'must be 1 to 63 of A-Z a-z 0-9 _ -, and not begin with -';

export const indexNamePattern = /^[^\p{C}\p{Zl}\p{Zp}]{1,200}$/u;
/** The rule of `indexNamePattern`, for messages. */
export const indexNameRule = 'must be 1 to 200 printable characters';
/**
 * The same for the OpenAPI document. Generators of clients know neither `\\p` nor astral ranges, so it excludes control
 * characters and line separators only.
 */
export const publishedIndexNamePattern = '^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]{1,200}$';
