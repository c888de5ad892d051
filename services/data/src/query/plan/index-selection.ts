import { Compiler } from '../sql/filter-sql';
import type { Condition } from '../language/filter';
import type { ServingIndex, Source } from './relation';

/** The conditions that every match fulfils. */
function* conjuncts(find: Condition): Generator<Condition> {
  if (find.kind === 'and') for (const condition of find.conditions) yield* conjuncts(condition);
  else yield find;
}

/** The fields that all matches have with the same value, and with the same key where they have one. */
export function fixedFields(source: Source, find: Condition): ReadonlySet<string> {
  const compiler = new Compiler(source);
  const fixed = new Set<string>();
  for (const condition of conjuncts(find)) {
    if (condition.kind === 'is' && compiler.fixesKey(condition.path, condition.value)) {
      fixed.add(condition.path.join('.'));
    }
  }
  return fixed;
}

/**
 * The source with the columns of the composite index that narrows the matches down the most: whose first columns are
 * fixed, and the next perhaps bounded. The source itself where a single index does as well.
 */
export function sourceFor(source: Source, find: Condition): Source {
  const composites = source.indexes.filter(({ fields }) => fields.length > 1);
  if (composites.length === 0) return source;
  const fixed = fixedFields(source, find);
  const bounded = new Set<string>();
  for (const condition of conjuncts(find)) {
    if ('path' in condition && ['range', 'in', 'text'].includes(condition.kind)) bounded.add(condition.path.join('.'));
  }
  const run = (fields: readonly string[]): number => {
    const end = fields.findIndex((field) => !fixed.has(field));
    if (end < 0) return fields.length;
    return bounded.has(fields[end]!) ? end + 0.5 : end;
  };
  let best: ServingIndex | undefined;
  let most = 1;
  for (const index of composites) {
    if (run(index.fields) <= most) continue;
    best = index;
    most = run(index.fields);
  }
  return best ? withKeysOf(source, best) : source;
}

/** The source, its fields read by the columns of this index where it has them. */
export function withKeysOf(source: Source, index: ServingIndex): Source {
  const keys = new Map(source.keys);
  index.fields.forEach((field, at) => keys.set(field, index.columns[at]!));
  return { ...source, keys };
}
