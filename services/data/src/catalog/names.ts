import { appIdPattern, indexNamePattern, namePattern } from '@granary/shared/names';

export const ALREADY_EXISTS = 'ALREADY_EXISTS';

/** Whether text may name a collection, a view or a query. */
export const isName = (text: string): boolean => namePattern.test(text);

/** Whether text may be the path of an indexed field or of a rule: 1 to 16 steps with dots between them. */
export function isFieldPath(text: string): boolean {
  if (text.length > 500) return false;
  const steps = text.split('.');
  return steps.length <= 16 && !steps.some((step) => step === '' || /^-\d+$/.test(step));
}

export const isAppId = (text: string): boolean => appIdPattern.test(text);

/** Whether text may name an index: 1 to 200 printable characters. */
export const isIndexName = (text: string): boolean => indexNamePattern.test(text);
