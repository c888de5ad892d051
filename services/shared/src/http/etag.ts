import { hash } from 'node:crypto';

/** A strong entity tag of a representation, made from its bytes. */
export const strongEtag = (bytes: Buffer): string => `"${hash('sha256', bytes, 'base64url').slice(0, 22)}"`;

/** The tags of an If-Match or If-None-Match; `*` stands for any, so for the one that there is. */
export function listedEtags(header: string, current: string): string[] {
  return header.trim() === '*' ? [current] : (header.match(/(W\/)?"[^"]*"/g) ?? []);
}

/** Whether an If-None-Match names the current representation, by the weak comparison of RFC 9110 §8.8.3.2. */
export function namesCurrent(ifNoneMatch: string | undefined, current: string): boolean {
  if (ifNoneMatch === undefined) return false;
  const opaque = (tag: string) => tag.replace(/^W\//, '');
  return listedEtags(ifNoneMatch, current).some((tag) => opaque(tag) === opaque(current));
}
