import { loadDocuments, measure, settle } from './measure.mjs';
import { startProcess } from './processes.mjs';
import { median, table } from './report.mjs';
import { runs } from './runs.mjs';
import { startSide } from './sides.mjs';

const ratio = 0.01;
/** Target for the slowdown of a traced process. */
const wanted = 0.15;
const documents = 20_000;
const warmUpSeconds = 2;
const measuredRuns = ['point', 'insert'];
/** The SDK exports at least this often. */
const exportMs = 1_000;

export const tracingTitle = `tracing: one request in ${1 / ratio} traced, beside none`;

/**
 * Starts Granary twice, each in one process: one exports traces of sampled requests to a collector, the other traces
 * nothing. Both are measured alternately. Returns by run `{off, on, slower, dearer}`: medians of requests per second,
 * of the fraction of the rate that is lost, and of the processor time that is added.
 */
export async function measureTracing(tools, { rounds, seconds }) {
  const { directory, started, postgres, postgresPid } = tools;
  const collector = startProcess('collector.mjs');
  started(collector);
  const { endpoint } = await collector.call('start');
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
    OTEL_BSP_SCHEDULE_DELAY: String(exportMs),
    OTEL_TRACES_SAMPLER: 'traceidratio',
    OTEL_TRACES_SAMPLER_ARG: String(ratio),
  };
  const sides = {
    off: await startSide('embedded', { as: 'tracing_off', postgres, directory, started }),
    on: await startSide('embedded', { as: 'tracing_on', postgres, directory, started, env }),
  };
  const both = Object.values(sides);
  for (const side of both) {
    await loadDocuments(tools.load, side, documents);
    side.accepted = { documents, writes: 0, files: 0 };
  }
  await postgres.call('tidy');
  const measured = {};
  for (const run of measuredRuns) {
    for (const side of both) await measure(tools, side, run, warmUpSeconds);
    const results = [];
    for (let round = 0; round < rounds; round++) {
      const result = {};
      // The order alternates.
      for (const name of round % 2 === 0 ? ['off', 'on'] : ['on', 'off']) {
        await settle(both, postgresPid);
        result[name] = await measure(tools, sides[name], run, seconds);
      }
      results.push(result);
    }
    const cpu = ({ cpuUs }) => Object.values(cpuUs).reduce((sum, us) => sum + us, 0);
    measured[run] = {
      off: median(results.map(({ off }) => off.perSecond)),
      on: median(results.map(({ on }) => on.perSecond)),
      slower: median(results.map(({ off, on }) => 1 - on.perSecond / off.perSecond)),
      dearer: median(results.map(({ off, on }) => cpu(on) / cpu(off) - 1)),
    };
  }
  if ((await collector.call('exports')) === 0) throw new Error('No trace was exported.');
  return measured;
}

/** Formats the table of results. */
export function tracingLines(measured) {
  const percent = (share) => `${(share * 100).toFixed(0)} %`;
  const rows = Object.entries(measured).map(([run, { off, on, slower, dearer }]) => [
    `${run}, ${runs[run].connections} at once`,
    off.toFixed(0),
    on.toFixed(0),
    percent(slower),
    percent(dearer),
    '',
  ]);
  const header = ['', 'off, requests/s', 'on, requests/s', 'slower by', 'dearer in CPU by', ''];
  return ['', `${tracingTitle} (wanted: slower by less than ${percent(wanted)})`, ...table([header, ...rows])];
}
