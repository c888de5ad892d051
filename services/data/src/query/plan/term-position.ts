import { readJson } from '@granary/shared/json/value';
import { isTruncated, keyType, orderedKey } from '../../values/ordered-key';
import { recordLimits, type Position } from './cursor';
import type { Order } from './order';
import type { Relation } from './relation';

/** The position of a row in an order, for one of its terms. */
export interface TermPosition {
  /** The key; in an order that descends that of missing and null is empty. */
  key: Buffer;
  /** The whole string where its key is truncated. */
  text: string | undefined;
}

/** The positions of a row for the terms of an order. */
export function termPositionsOf(source: Relation, { terms }: Order, { values }: Position): TermPosition[] {
  return terms.map(({ path, at: index, descending }) => {
    const json = values[index] ?? null;
    const value = json === null ? null : readJson(Buffer.from(json), recordLimits);
    const key = orderedKey(value, source.dates.has(path.join('.')));
    const text = isTruncated(key) ? (value as string) : undefined;
    return { key: descending && key[0] === keyType.empty ? Buffer.alloc(0) : key, text };
  });
}
