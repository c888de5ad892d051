const NAME = /^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$/;
const APP_ID = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/;

/** Whether text may name a collection, a view or a query. */
export const isName = (text: string): boolean => NAME.test(text);

export const isAppId = (text: string): boolean => APP_ID.test(text);

/** Whether text may name an index: 1 to 200 printable characters. */
export const isIndexName = (text: string): boolean => /^[^\p{C}\p{Zl}\p{Zp}]{1,200}$/u.test(text);
