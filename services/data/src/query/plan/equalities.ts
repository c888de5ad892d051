import type { Relation } from './relation';
import { orderedKey } from '../../values/ordered-key';
import type { Condition } from '../language/condition';

/** The conditions that every match fulfils. */
function* conjuncts(find: Condition): Generator<Condition> {
  if (find.kind === 'and') for (const condition of find.conditions) yield* conjuncts(condition);
  else yield find;
}

/** The keys of the fields that have the same value in all matches. */
export function equalityKeys(source: Relation, find: Condition): ReadonlyMap<string, Buffer> {
  const fixed = new Map<string, Buffer>();
  for (const condition of conjuncts(find)) {
    if (condition.kind !== 'is' && condition.kind !== 'empty') continue;
    const name = condition.path.join('.');
    if (name === 'id' && source.hasIdColumn) continue;
    fixed.set(name, orderedKey(condition.kind === 'is' ? condition.value : null, source.dates.has(name)));
  }
  return fixed;
}
