import type { Path } from './condition';
import type { Operator } from './operator';
import { operatorOf } from './operators';
import { invalidQuery, overLimit } from './query-error';

export const pathStepsMax = 64;

/** A path as a name: dotted steps, at its end perhaps an operator (`price.$gte`). Throws INVALID_QUERY. */
export function parseName(name: string, location: string): { path: string[]; operator: Operator | undefined } {
  const steps = name.split('.');
  const last = steps.at(-1)!;
  const suffixed = steps.length > 1 && last.startsWith('$');
  if (suffixed) steps.pop();
  for (const step of steps) {
    if (step === '') throw invalidQuery(location, 'has an empty step in its path');
    if (/^-\d+$/.test(step)) throw invalidQuery(location, 'has a negative step in its path');
    if (step.startsWith('$')) throw invalidQuery(location, 'has an operator before the end of its path');
  }
  assertSteps(steps, location);
  return { path: steps, operator: suffixed ? operatorOf(last, location) : undefined };
}

/** A path as a name, without an operator. Throws INVALID_QUERY. */
export function parsePath(name: string, location: string): string[] {
  const { path, operator } = parseName(name, location);
  if (operator !== undefined) throw invalidQuery(location, 'must be a path without an operator');
  return path;
}

export function assertSteps(path: Path, location: string): void {
  if (path.length > pathStepsMax) throw overLimit(location, `may have at most ${pathStepsMax} steps`);
}
