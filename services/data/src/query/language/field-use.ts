import type { Projection } from '../../json/project';
import type { Path } from './condition';

/**
 * Whether one of the paths is `target`, leads to it or into it. Any query touches the whole record, an empty path.
 */
export const isTouched = (target: Path, paths: readonly Path[]): boolean =>
  target.length === 0 ||
  paths.some((path) => {
    const shared = Math.min(path.length, target.length);
    return path.slice(0, shared).every((step, index) => isSameStep(step, target[index]!));
  });

/**
 * Whether all of the projections, of which one is applied after the other, keep the field at a path, or a part of it.
 */
export const isShown = (path: Path, shown: readonly Projection[]): boolean =>
  shown.every((projection) => keeps(projection, path, 0));

/** `07` is the same element of an array as `7`. */
const isSameStep = (one: string, other: string): boolean =>
  one === other || (/^\d+$/.test(one) && /^\d+$/.test(other) && BigInt(one) === BigInt(other));

function keeps(projection: Projection, path: Path, depth: number): boolean {
  if (projection === 'all') return true;
  if (projection === 'none') return false;
  if (depth === path.length) return true;
  let isNamed = false;
  for (const [step, part] of projection.members.entries()) {
    if (!isSameStep(step, path[depth]!)) continue;
    if (keeps(part, path, depth + 1)) return true;
    isNamed = true;
  }
  return !isNamed && projection.keeps === 'others';
}
