import { settle } from './measure';
import type { Load, LoadRequest } from './load';
import { namesOf, recordOf } from './records';
import { median } from './report';
import type { GranarySide } from './sides';
import type { Lengths, Tools } from './tools';

const warmUpSeconds = 2;

/** A request that a side answers with 200, or one to another server. */
export type Read = Omit<LoadRequest, 'statuses'> & Partial<Load>;

/** Milliseconds of each request, and the ratio of two of them. */
export type Alternation<Name extends string> = Record<Name, number> & { ratio: number };

/**
 * Sends requests alternately, one at a time. Returns the medians of milliseconds of each, and of the ratio of two of
 * them in a round.
 */
export async function alternately<Name extends string>(
  tools: Pick<Tools, 'load' | 'postgresPid'>,
  side: Pick<GranarySide, 'port' | 'pids'>,
  requests: Record<Name, Read>,
  { rounds, seconds }: Lengths,
  [above, below]: [NoInfer<Name>, NoInfer<Name>],
): Promise<Alternation<Name>> {
  const run = async (request: Read, length: number) => {
    const load = { port: side.port, statuses: [200], connections: 1, firstNumber: 0, ...request };
    const result = await tools.load.call('run', { ...load, seconds: length, requestsMax: Number.MAX_SAFE_INTEGER });
    if (result.refused !== undefined) throw new Error(`A read was refused: ${result.refused}`);
    return result.p50Ms;
  };
  const names = namesOf(requests);
  for (const name of names) await run(requests[name], warmUpSeconds);
  const results: Array<Record<Name, number>> = [];
  for (let round = 0; round < rounds; round++) {
    const result: Partial<Record<Name, number>> = {};
    for (const name of round % 2 === 0 ? names : names.toReversed()) {
      await settle([side], tools.postgresPid);
      result[name] = await run(requests[name], seconds);
    }
    results.push(recordOf(names, (name) => result[name]!));
  }
  const medians = recordOf(names, (name) => median(results.map((result) => result[name])));
  return { ...medians, ratio: median(results.map((result) => result[above] / result[below])) };
}
