import { isTimed, isDay } from '../../src/values/instant';
import type { Meaning } from './query-reference';
import { dateFields } from './query-values';

const byValue = new Set(['is', 'isNot', 'in', 'notIn', '<', '<=', '>', '>=', 'between']);

/**
 * Whether a filter compares a date with what is no instant, so that it is refused. A date of a schema is not compared
 * with days either, unless `takesDays`.
 */
export function isRefused(meaning: Meaning, takesDays = false): boolean {
  if ('all' in meaning) return meaning.all.some((part) => isRefused(part, takesDays));
  if ('any' in meaning) return meaning.any.some((part) => isRefused(part, takesDays));
  if ('none' in meaning) return meaning.none.some((part) => isRefused(part, takesDays));
  const { path, operator, operand } = meaning;
  if (!dateFields.has(path.join('.'))) return false;
  const isInstant = (value: unknown) => typeof value === 'string' && (isTimed(value) || (takesDays && isDay(value)));
  if (operator === 'contains') return typeof operand !== 'string';
  if (operator === 'b64') return !isInstant(Buffer.from(operand as string, 'base64url').toString());
  if (!byValue.has(operator)) return false;
  const values = ['in', 'notIn', 'between'].includes(operator) ? (operand as unknown[]) : [operand];
  return values.some((value) => value !== null && !isInstant(value));
}
