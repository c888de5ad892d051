/** The result that clients report at their end. */
export interface TrafficResult {
  requests: number;
  /** The number of requests by the second of the clock. */
  requestsAt: Record<number, number>;
  /** How often each kind of work was done. */
  kinds: Record<string, number>;
  /** The ids of the documents whose writes were acknowledged. */
  written: string[];
  /** The checksums of the blobs whose uploads were acknowledged, by id. */
  uploaded: Record<string, string>;
  failed: number;
  /** The first of the failures. */
  failures: string[];
}

/** The result of clients beside a change, with the number of their requests from its beginning to its end. */
export interface ResultBeside extends TrafficResult {
  beside: number;
}

/** The outcome of requests in several rounds of a change. */
export interface Sum extends Pick<ResultBeside, 'beside' | 'requests' | 'failed' | 'kinds'> {
  /** The title of the change. */
  title: string;
  rounds: number;
}

/** Throws if one of the requests of clients failed; returns how many there were. */
export function requireSuccess({ requests, failed, failures }: TrafficResult): string {
  if (failed > 0) throw new Error(`${failed} of ${requests} requests failed:\n${failures.join('\n')}`);
  return `${requests} requests, none failed`;
}

/** How many requests were made in the whole seconds between two times. */
export function countBetween(requestsAt: Record<number, number>, beganMs: number, endedMs: number): number {
  return Object.entries(requestsAt)
    .filter(([second]) => Number(second) * 1_000 >= beganMs && Number(second) * 1_000 + 1_000 <= endedMs)
    .reduce((sum, [, count]) => sum + count, 0);
}

export const makeSum = (title: string): Sum => ({ title, rounds: 0, beside: 0, requests: 0, failed: 0, kinds: {} });

/** Adds one round. */
export function addTo(sum: Sum, { kinds, ...result }: ResultBeside): void {
  sum.rounds += 1;
  for (const count of ['beside', 'requests', 'failed'] as const) sum[count] += result[count];
  for (const [kind, count] of Object.entries(kinds)) sum.kinds[kind] = (sum.kinds[kind] ?? 0) + count;
}

export function describeSum({ title, rounds, beside, requests, failed, kinds }: Sum): string {
  const times = rounds > 1 ? ` in ${rounds} times` : '';
  const done = Object.entries(kinds).map(([kind, count]) => `${kind} ${count}`);
  return `${title}: ${beside} requests beside it${times}, ${failed || 'none'} of all ${requests} failed (${done.join(', ')})`;
}
