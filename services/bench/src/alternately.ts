import { settle } from './measure.mjs';
import { median } from './report.mjs';

const warmUpSeconds = 2;

/** The medians of milliseconds of each request, and of the ratio of two of them in a round. */
export async function alternately(tools, side, requests, { rounds, seconds }, [above, below]) {
  const run = async (request, length) => {
    const load = { port: side.port, statuses: [200], connections: 1, firstNumber: 0, ...request };
    const result = await tools.load.call('run', { ...load, seconds: length, requestsMax: Number.MAX_SAFE_INTEGER });
    if (result.refused !== undefined) throw new Error(`A read was refused: ${result.refused}`);
    return result.p50Ms;
  };
  for (const request of Object.values(requests)) await run(request, warmUpSeconds);
  const results = [];
  for (let round = 0; round < rounds; round++) {
    const names = Object.keys(requests);
    const result = {};
    for (const name of round % 2 === 0 ? names : names.reverse()) {
      await settle([side], tools.postgresPid);
      result[name] = await run(requests[name], seconds);
    }
    results.push(result);
  }
  const medians = Object.keys(requests).map((name) => [name, median(results.map((result) => result[name]))]);
  return { ...Object.fromEntries(medians), ratio: median(results.map((result) => result[above] / result[below])) };
}
