import { loadDocuments, look, settle, usageOf } from './measure.mjs';
import { median, processorTimes, table } from './report.mjs';
import { bulkSize } from './runs.mjs';

/** Documents that are read and changed; more than one run changes, so that few are changed twice. */
const documentCount = 100_000;

/**
 * Each with what it is compared with in the same round, and how much of that is wanted; `sameAs`: the run of another
 * row.
 */
const measured = {
  insert: { title: '/store of one document', connections: 32, documents: 1 },
  put: { title: 'PUT of a new document', connections: 32, documents: 1, of: 'insert', wanted: 0.9 },
  // What a PATCH writes: a version, and the one before it to history.
  replace: { title: 'PUT of a document that exists', connections: 32, of: 'insert' },
  patch: { title: 'PATCH of one member', connections: 32, of: 'insert', wanted: 0.7 },
  patchOfReplace: { title: 'the same', sameAs: 'patch', of: 'replace' },
  point: { title: 'point read by an indexed field', connections: 32 },
  get: { title: 'GET by id', connections: 32, of: 'point', wanted: 1 },
  notModified: { title: 'GET by id, not modified', connections: 32, of: 'point', wanted: 1.5 },
  unchangedPoint: { title: 'point read, not modified', connections: 32, of: 'point', wanted: 1.5 },
  bulk: { title: `/store of ${bulkSize} documents`, connections: 8, documents: bulkSize, requestsMax: 100 },
  // What a batch of updates writes: a version of each, and the one before it to history.
  load: { title: `/store of ${bulkSize} documents that exist`, connections: 8, of: 'bulk', requestsMax: 100 },
  batch: { title: `batch of ${bulkSize} updates`, connections: 8, of: 'load', wanted: 0.7, requestsMax: 100 },
  batchOfBulk: { title: `the same`, sameAs: 'batch', of: 'bulk', wanted: 0.7 },
};

/**
 * Measures requests for single documents, batches and unchanged pages beside `/store` and reads of the same round, in
 * an app of their own. Returns `{name: {perSecond, ratio, cpuUs}}`, medians of the rounds; a batch and a bulk count as
 * one request.
 */
export async function measureSingleDocuments({ load, postgresPid }, side, { rounds, seconds }) {
  const { requests, prepare } = await side.openApp('single');
  await prepare(false);
  const app = { name: side.name, port: side.port, requests, nextNumber: 0 };
  await loadDocuments(load, app, documentCount);
  app.nextNumber = documentCount;
  const results = Object.fromEntries(Object.keys(measured).map((name) => [name, []]));
  for (let round = -1; round < rounds; round++) {
    const rates = {};
    for (const [
      name,
      { connections, documents = 0, of, sameAs, requestsMax = Number.MAX_SAFE_INTEGER },
    ] of Object.entries(measured)) {
      if (sameAs) {
        if (round >= 0) results[name].push({ ...results[sameAs].at(-1), ratio: rates[sameAs] / rates[of] });
        continue;
      }
      await settle([side], postgresPid);
      const firstNumber = documents > 0 ? app.nextNumber : 0;
      const run = { ...requests[name], port: side.port, seconds, connections, requestsMax, firstNumber };
      const before = look(side, postgresPid);
      const { requests: count, refused, elapsedMs } = await load.call('run', run);
      const { cpuUs } = usageOf(before, look(side, postgresPid), count);
      if (refused !== undefined) throw new Error(`${name} was refused: ${refused}`);
      app.nextNumber += count * documents + connections * documents;
      rates[name] = (count * 1000) / elapsedMs;
      // The first round is the warm-up.
      if (round >= 0) results[name].push({ perSecond: rates[name], ratio: of && rates[name] / rates[of], cpuUs });
    }
  }
  const medians = (each) => ({
    perSecond: median(each.map((one) => one.perSecond)),
    ratio: median(each.map((one) => one.ratio)),
    cpuUs: Object.fromEntries(
      Object.keys(each[0].cpuUs).map((process) => [process, median(each.map((one) => one.cpuUs[process]))]),
    ),
  });
  return Object.fromEntries(Object.entries(results).map(([name, each]) => [name, medians(each)]));
}

/** Formats the table of the case: `results` by side. */
export function singleDocumentsLines(results) {
  const rows = Object.entries(results).flatMap(([side, ofSide]) =>
    Object.entries(ofSide).map(([name, { perSecond, ratio, cpuUs }]) => {
      const { title, of, wanted } = measured[name];
      const compared = of ? [ratio.toFixed(2), `${wanted ?? ''} x ${measured[of].title}`.trimStart()] : ['', ''];
      return [`${side}, ${title}`, Math.round(perSecond).toLocaleString('en-US'), ...compared, processorTimes(cpuUs)];
    }),
  );
  return [
    '',
    'documents: one document in a request, and batches',
    ...table([['', 'requests/s', 'ratio', 'wanted', 'CPU µs per request'], ...rows]),
  ];
}
