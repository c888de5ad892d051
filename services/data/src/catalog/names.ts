const NAME = /^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$/;
const APP_ID = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/;

/** The rule of `isName`, for messages. */
export const nameRule = 'must be 1 to 63 of A-Z a-z 0-9 _ -, and not begin with -';

/** Whether text may name a collection, a view or a query. */
export const isName = (text: string): boolean => NAME.test(text);

/** Whether text may be the path of an indexed field or of a rule: 1 to 16 steps with dots between them. */
export function isFieldPath(text: string): boolean {
  if (text.length > 500) return false;
  const steps = text.split('.');
  return steps.length <= 16 && !steps.some((step) => step === '' || /^-\d+$/.test(step));
}

export const isAppId = (text: string): boolean => APP_ID.test(text);

/** Whether text may name an index: 1 to 200 printable characters. */
export const isIndexName = (text: string): boolean => /^[^\p{C}\p{Zl}\p{Zp}]{1,200}$/u.test(text);
