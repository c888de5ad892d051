import { UsageError } from '../failure.ts';

/** A path of the interface, `/api/…`. Throws UsageError for names that a URL would take for steps in it. */
export const apiPath = (...segments: string[]): string => ['/api', ...segments.map(checkedSegment)].join('/');

function checkedSegment(name: string): string {
  if (['', '.', '..'].includes(name)) throw new UsageError(`"${name}" is not an id or a name`);
  return encodeURIComponent(name);
}
