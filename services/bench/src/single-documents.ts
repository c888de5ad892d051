import { loadDocuments, look, settle, usageOf } from './measure';
import { namesOf, recordOf } from './records';
import { median, mediansByProcess, processorTimes, table } from './report';
import { bulkSize } from './runs';
import type { GranarySide } from './sides';
import type { Lengths, Tools } from './tools';

/** Rows that are measured themselves, by the names of their requests. */
type SentName =
  | 'insert'
  | 'put'
  | 'replace'
  | 'patch'
  | 'point'
  | 'get'
  | 'notModified'
  | 'unchangedPoint'
  | 'bulk'
  | 'load'
  | 'batch';
type RequestKindName = SentName | 'patchOfReplace' | 'batchOfBulk';

interface RequestKind {
  title: string;
  /** The request that it is compared with in the same round. */
  of?: SentName;
  /** The least ratio of its rate to the rate of that request. */
  wanted?: number;
}

/** A row that is measured. */
interface SentKind extends RequestKind {
  connections: number;
  /** The number of new documents in each request. */
  documents?: number;
  requestsMax?: number;
}

/** A row that compares the measurement of another row with a second request. */
interface SameKind extends RequestKind {
  sameAs: SentName;
  of: SentName;
}

interface Round {
  perSecond: number;
  /** Undefined for a row that is compared with nothing. */
  ratio: number | undefined;
  cpuUs: Record<string, number>;
}

/** Documents that are read and changed; more than one run changes, so that few are changed twice. */
const documentCount = 100_000;

const requestKinds: Record<SentName, SentKind> & Record<Exclude<RequestKindName, SentName>, SameKind> = {
  insert: { title: '/store of one document', connections: 32, documents: 1 },
  put: { title: 'PUT of a new document', connections: 32, documents: 1, of: 'insert', wanted: 0.9 },
  // This writes the same as a PATCH: a version, and the one before it to history.
  replace: { title: 'PUT of a document that exists', connections: 32, of: 'insert' },
  patch: { title: 'PATCH of one member', connections: 32, of: 'insert', wanted: 0.7 },
  patchOfReplace: { title: 'the same', sameAs: 'patch', of: 'replace' },
  point: { title: 'point read by an indexed field', connections: 32 },
  get: { title: 'GET by id', connections: 32, of: 'point', wanted: 1 },
  notModified: { title: 'GET by id, not modified', connections: 32, of: 'point', wanted: 1.5 },
  unchangedPoint: { title: 'point read, not modified', connections: 32, of: 'point', wanted: 1.5 },
  bulk: { title: `/store of ${bulkSize} documents`, connections: 8, documents: bulkSize, requestsMax: 100 },
  // This writes the same as a batch of updates: a version of each document, and the one before it to history.
  load: { title: `/store of ${bulkSize} documents that exist`, connections: 8, of: 'bulk', requestsMax: 100 },
  batch: { title: `batch of ${bulkSize} updates`, connections: 8, of: 'load', wanted: 0.7, requestsMax: 100 },
  batchOfBulk: { title: `the same`, sameAs: 'batch', of: 'bulk', wanted: 0.7 },
};

/**
 * Measures requests for single documents, batches and unchanged pages beside `/store` and reads of the same round, in
 * an app of their own. Returns medians of the rounds; a batch and a bulk count as one request.
 */
export async function measureSingleDocuments(
  { load, postgresPid }: Tools,
  side: GranarySide,
  { rounds, seconds }: Lengths,
): Promise<Record<RequestKindName, Round>> {
  const { requests, prepare } = await side.openApp('single');
  await prepare(false);
  const app = { name: side.name, port: side.port, requests, nextNumber: 0 };
  await loadDocuments(load, app, documentCount);
  app.nextNumber = documentCount;
  const send = async (name: SentName) => {
    const { connections, documents = 0, requestsMax = Number.MAX_SAFE_INTEGER } = requestKinds[name];
    await settle([side], postgresPid);
    const firstNumber = documents > 0 ? app.nextNumber : 0;
    const run = { ...requests[name], port: side.port, seconds, connections, requestsMax, firstNumber };
    const before = look(side, postgresPid);
    const { requests: count, refused, elapsedMs } = await load.call('run', run);
    const { cpuUs } = usageOf(before, look(side, postgresPid), count);
    if (refused !== undefined) throw new Error(`${name} was refused: ${refused}`);
    app.nextNumber += count * documents + connections * documents;
    return { perSecond: (count * 1000) / elapsedMs, cpuUs };
  };
  const names = namesOf(requestKinds);
  const results = recordOf(names, (): Round[] => []);
  for (let round = -1; round < rounds; round++) {
    const sent: Partial<Record<RequestKindName, Omit<Round, 'ratio'>>> = {};
    for (const name of names) {
      const kind = requestKinds[name];
      const one = 'sameAs' in kind ? sent[kind.sameAs]! : await send(name as SentName);
      sent[name] = one;
      // The first round is the warm-up.
      if (round >= 0) results[name].push({ ...one, ratio: kind.of && one.perSecond / sent[kind.of]!.perSecond });
    }
  }
  return recordOf(names, (name) => medians(results[name]));
}

function medians(rounds: readonly Round[]): Round {
  const ratios = rounds.flatMap(({ ratio }) => ratio ?? []);
  return {
    perSecond: median(rounds.map(({ perSecond }) => perSecond)),
    ratio: ratios.length === 0 ? undefined : median(ratios),
    cpuUs: mediansByProcess(rounds.map(({ cpuUs }) => cpuUs)),
  };
}

/** Formats the table of the case: `results` by side. */
export function singleDocumentsLines(results: Record<string, Record<RequestKindName, Round>>): string[] {
  const rows = Object.entries(results).flatMap(([side, ofSide]) =>
    namesOf(ofSide).map((name) => {
      const { perSecond, ratio, cpuUs } = ofSide[name];
      const { title, of: baseline, wanted: wantedRatio }: RequestKind = requestKinds[name];
      const compared = baseline
        ? [ratio!.toFixed(2), `${wantedRatio ?? ''} x ${requestKinds[baseline].title}`.trimStart()]
        : ['', ''];
      return [`${side}, ${title}`, Math.round(perSecond).toLocaleString('en-US'), ...compared, processorTimes(cpuUs)];
    }),
  );
  return [
    '',
    'documents: one document in a request, and batches',
    ...table([['', 'requests/s', 'ratio', 'wanted', 'CPU µs per request'], ...rows]),
  ];
}
