import type { JsonValue } from '@granary/shared/json/value';
import type { Path } from './condition';
import type { References } from './operator';
import { parsePath } from './path';
import { invalidQuery } from './query-error';

const parentReference = /^\$(?:data|parent)(?:\.|$)/;

/** Whether an operand refers to the record one level up. */
export const isReference = (operand: JsonValue): boolean =>
  typeof operand === 'string' && operand.startsWith('$') && parentReference.test(operand);

/** The references of a `find` that has no record above it. */
export const noReferences: References = {
  pathOf(operand, location) {
    if (isReference(operand))
      throw invalidQuery(location, 'refers to the record one level up, and only joins have one');
    return undefined;
  },
};

/** The references of the `find` of a join, with a list of those that are there. */
export class ParentReferences implements References {
  readonly found: Array<{ path: Path; at: string }> = [];

  pathOf(operand: JsonValue, location: string): Path | undefined {
    if (typeof operand !== 'string' || !operand.startsWith('$')) return undefined;
    if (!parentReference.test(operand)) {
      if (/^\$[a-z_]\w*\./i.test(operand))
        throw invalidQuery(location, 'may refer to $data.<field> or $parent.<field> only');
      return undefined;
    }
    const dot = operand.indexOf('.');
    const path = parsePath(dot < 0 ? '' : operand.slice(dot + 1), location);
    this.found.push({ path, at: location });
    return path;
  }
}
