import { editDistance } from '../near-names';

/** A name with up to this share of its characters changed is taken for a misspelling. */
const charactersPerTypo = 4;
const typosMax = 3;

/**
 * The known name that `name` misspells: the nearest one by edit distance, if it is near enough. Undefined for a known
 * name.
 */
export function misspeltName(name: string, settingNames: readonly string[]): string | undefined {
  if (settingNames.includes(name)) return undefined;
  const upper = name.toUpperCase();
  let nearest: string | undefined;
  let least = typosMax + 1;
  for (const candidate of settingNames) {
    const limit = Math.min(typosMax, Math.floor(candidate.length / charactersPerTypo), least - 1);
    const distance = editDistance(upper, candidate, limit);
    if (distance > limit) continue;
    nearest = candidate;
    least = distance;
  }
  return nearest;
}
