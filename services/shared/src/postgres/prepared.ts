import { createHash } from 'node:crypto';

/** Each named statement takes memory on each connection that runs it. */
const namesMax = 256;
/** Only what is asked for again and again is worth a name. */
const usesBeforeName = 16;
const countedMax = 4_096;

const names = new Map<string, string>();
const uses = new Map<string, number>();

/**
 * The name under which a statement is prepared, so that Postgres parses and plans it once for each connection; none
 * for one that is rare, or once there are as many as may be. The text decides: it holds no value of anybody.
 */
export function statementName(text: string): string | undefined {
  const name = names.get(text);
  if (name !== undefined || names.size >= namesMax) return name;
  const used = (uses.get(text) ?? 0) + 1;
  if (used < usesBeforeName) {
    if (uses.size >= countedMax) uses.clear();
    uses.set(text, used);
    return undefined;
  }
  uses.delete(text);
  const made = `s_${createHash('sha256').update(text).digest('hex').slice(0, 24)}`;
  names.set(text, made);
  return made;
}
