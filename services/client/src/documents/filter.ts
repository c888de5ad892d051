import { GranaryError } from '../errors.ts';

/**
 * The filter. Throws GranaryError with VALIDATION_FAILED where a member is undefined: JSON would leave it out, and the
 * filter would let everything through.
 */
export function checkedFilter<F extends object | undefined>(filter: F): F {
  checkMembers(filter, 'find');
  return filter;
}

/** The JSON of a filter, or of one that is JSON already. Throws as `checkedFilter` does. */
export const filterText = (filter: object | string | undefined): string | undefined =>
  typeof filter === 'object' ? JSON.stringify(checkedFilter(filter)) : filter;

function checkMembers(filter: unknown, path: string): void {
  if (typeof filter !== 'object' || filter === null) return;
  for (const [name, value] of Object.entries(filter)) {
    if (value === undefined) throw invalidFilter(`${path}.${name} is undefined`);
    checkMembers(value, `${path}.${name}`);
  }
}

export const invalidFilter = (message: string): GranaryError =>
  new GranaryError(message, { code: 'VALIDATION_FAILED' });
