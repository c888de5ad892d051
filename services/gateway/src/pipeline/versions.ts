import { invalid } from '@granary/shared/errors';
import type { Versions } from '@granary/shared/gen/granary/data/v1/Versions';
import type { RouteRequest } from './route';

/** Entity tags that one header may list. */
const tagsMax = 64;
/** `*`, or entity tags separated by commas. */
const tagList = /^\s*(?:\*|(?:W\/)?"[^"]*"(?:\s*,\s*(?:W\/)?"[^"]*")*)\s*$/;
/** The tag of a version, as it is or with the name of the content coding that an answer had. */
const versionTag = /^(W\/)?"([1-9]\d{0,17})(?:-[a-z]+)?"$/;

/** The entity tag of a version of a document. */
export const etagOfVersion = (version: string): string => `"${version}"`;

/** The versions that `If-Match` names: compared strongly, so weak tags name none. Throws VALIDATION_FAILED. */
export const ifMatch = (request: Pick<RouteRequest, 'incoming'>): Versions | undefined =>
  versionsIn(request, 'If-Match', ({ isWeak }) => !isWeak);

/** The versions that `If-None-Match` names: compared weakly. Throws VALIDATION_FAILED. */
export const ifNoneMatch = (request: Pick<RouteRequest, 'incoming'>): Versions | undefined =>
  versionsIn(request, 'If-None-Match', () => true);

function versionsIn(
  { incoming }: Pick<RouteRequest, 'incoming'>,
  name: 'If-Match' | 'If-None-Match',
  counts: (tag: { isWeak: boolean }) => boolean,
): Versions | undefined {
  const header = incoming.headers[name.toLowerCase()];
  if (header === undefined) return undefined;
  if (typeof header !== 'string' || !tagList.test(header)) {
    throw invalid(`${name} is not valid`, { [name]: ['must be * or ETags in quotes, separated by commas'] });
  }
  if (header.trim() === '*') return { any: true, numbers: [] };
  const tags = header.split(',');
  if (tags.length > tagsMax) throw invalid(`${name} is not valid`, { [name]: [`may list at most ${tagsMax} ETags`] });
  const numbers: string[] = [];
  for (const tag of tags) {
    const [, weak, version] = versionTag.exec(tag.trim()) ?? [];
    // Any other tag is of no version.
    if (version !== undefined && counts({ isWeak: weak !== undefined })) numbers.push(version);
  }
  return { any: false, numbers };
}
