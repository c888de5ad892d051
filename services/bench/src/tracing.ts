import type { CollectorCalls } from './collector';
import { loadDocuments, measure, settle, type Measurement } from './measure';
import { startProcess } from './processes';
import { namesOf } from './records';
import { median, table, total } from './report';
import { runs } from './runs';
import { startSide, type GranarySide } from './sides';
import type { Lengths, Tools } from './tools';

const sampledShare = 0.01;
/** Target for the slowdown of a traced process. */
const wantedShare = 0.15;
const documents = 20_000;
const warmUpSeconds = 2;
/** The SDK exports at least this often. */
const exportMs = 1_000;

type TracedRun = 'point' | 'insert';

/** Medians of requests per second, of the share of the rate that is lost, and of the processor time that is added. */
interface TracingResult {
  off: number;
  on: number;
  slower: number;
  dearer: number;
}

export const tracingTitle = `tracing: one request in ${1 / sampledShare} traced, beside none`;

/**
 * Starts Granary twice, each in one process: one exports traces of sampled requests to a collector, the other traces
 * nothing. Both are measured alternately.
 */
export async function measureTracing(tools: Tools, lengths: Lengths): Promise<Record<TracedRun, TracingResult>> {
  const { directory, onStart, postgres } = tools;
  const collector = startProcess<CollectorCalls>('collector.js');
  onStart(collector);
  const { endpoint } = await collector.call('start');
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
    OTEL_BSP_SCHEDULE_DELAY: String(exportMs),
    OTEL_TRACES_SAMPLER: 'traceidratio',
    OTEL_TRACES_SAMPLER_ARG: String(sampledShare),
  };
  const sides = {
    off: await startSide('embedded', { as: 'tracing_off', postgres, directory, onStart }),
    on: await startSide('embedded', { as: 'tracing_on', postgres, directory, onStart, env }),
  };
  for (const side of Object.values(sides)) await loadDocuments(tools.load, side, documents);
  await postgres.call('tidy');
  const results = {
    point: await measureRun(tools, sides, 'point', lengths),
    insert: await measureRun(tools, sides, 'insert', lengths),
  };
  if ((await collector.call('exports')) === 0) throw new Error('No trace was exported.');
  return results;
}

async function measureRun(
  tools: Tools,
  sides: Record<'off' | 'on', GranarySide>,
  run: TracedRun,
  { rounds, seconds }: Lengths,
): Promise<TracingResult> {
  const both = Object.values(sides);
  for (const side of both) await measure(tools, side, run, warmUpSeconds);
  const results: Array<Record<'off' | 'on', Measurement>> = [];
  for (let round = 0; round < rounds; round++) {
    const result: Partial<Record<'off' | 'on', Measurement>> = {};
    // The order alternates.
    for (const name of round % 2 === 0 ? (['off', 'on'] as const) : (['on', 'off'] as const)) {
      await settle(both, tools.postgresPid);
      result[name] = await measure(tools, sides[name], run, seconds);
    }
    results.push({ off: result.off!, on: result.on! });
  }
  return {
    off: median(results.map(({ off }) => off.perSecond)),
    on: median(results.map(({ on }) => on.perSecond)),
    slower: median(results.map(({ off, on }) => 1 - on.perSecond / off.perSecond)),
    dearer: median(results.map(({ off, on }) => total(on.cpuUs) / total(off.cpuUs) - 1)),
  };
}

/** Formats the table of results. */
export function tracingLines(results: Record<TracedRun, TracingResult>): string[] {
  const percent = (share: number) => `${(share * 100).toFixed(0)} %`;
  const rows = namesOf(results).map((run) => {
    const { off, on, slower, dearer } = results[run];
    const figures = [off.toFixed(0), on.toFixed(0), percent(slower), percent(dearer)];
    return [`${run}, ${runs[run].connections} at once`, ...figures, ''];
  });
  const header = ['', 'off, requests/s', 'on, requests/s', 'slower by', 'dearer in CPU by', ''];
  return ['', `${tracingTitle} (wanted: slower by less than ${percent(wantedShare)})`, ...table([header, ...rows])];
}
