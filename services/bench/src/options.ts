import path from 'node:path';
import { besideCases, type BesideCaseName } from './beside';
import { ownCases, type OwnCaseName } from './own-cases';
import { namesOf } from './records';
import { runNames, type RunName } from './runs';
import { granarySides, sideTitles, type SideName } from './sides';

export type SideCaseName = BesideCaseName | 'documents' | 'memory' | 'prices';
type MeasurableName = RunName | SideCaseName | OwnCaseName;

export interface Options {
  rounds: number;
  /** The length of one run. */
  seconds: number;
  warmUpSeconds: number;
  only: RunName[];
  /** Cases beyond the runs, measured for each side of Granary. */
  cases: SideCaseName[];
  /** Cases with processes of their own. */
  ownCases: OwnCaseName[];
  sides: SideName[];
  documents: number;
  /** The number of requests of the case `memory`. */
  requests: number;
  composite: boolean;
  build: boolean;
  profile?: SideName;
  /** The paths of pages that quote the table of all runs on all sides. */
  quote: string[];
  /** The paths of the file to write, and of the one to compare with. */
  out?: string;
  compare?: string;
}

const cases: SideCaseName[] = [...namesOf(besideCases), 'documents', 'memory', 'prices'];
const ownCaseNames = namesOf(ownCases);
const sideNames = namesOf(sideTitles);
const measurableNames: MeasurableName[] = [...runNames, ...cases, ...ownCaseNames];

export const help = `Measures Granary beside two baselines, on one Postgres of its own, in one go.

  npm run bench -- [options]

  --quick              one round of one second each, for a first look
  --rounds <n>         rounds, in each of which every side runs everything once    (default 3)
  --seconds <n>        length of one run                                           (default 3)
  --only <runs>        ${`of ${runNames.join(', ')}`.padEnd(58)}  (default all)
                       or cases, of Granary alone:
                       fairness: an app beside a slow reader and beside a flood of another app
                       strangers: an app beside the dearest reads of another one without a key
                       mixed: single inserts beside a bulk load of another and of the same app
                       documents: single documents and batches beside /store and point reads
                       memory: what processes hold after many requests; takes minutes
                       prices: reads that cost something, unpaid and paid, beside plain ones
                       or parts of it with processes of their own:
                       broadcast: commits told to 1,000 and to 10,000 feeds, beside a bare
                         server; needs 12,000 open files
                       cli: the start of the command line, beside that of Node alone
                       events: the bus, on both transports; Kafka needs Java
                       feeds: single writes beside 1,000 feeds of their collection, beside none
                       growth: reads by an index at 10,000 to 1,000,000 documents,
                         and far pages by cursor
                       joins: pages of 100 records with joins, beside SQL written by hand
                       ledger: transfers, beside pgbench -N where it is installed
                       objects: blobs of 1 and 100 MiB on MinIO, beside its client alone
                       purge: writers beside a purge of the same app, beside the same alone
                       scan: a filter without an index over 1,000,000 documents,
                         beside SQL written by hand
                       search: single writes with a full-text index, beside none
                       tracing: one request in a hundred traced, beside none
                       transfers: imports beside bulks, and exports beside COPY
                       verifications: of x402 payments, beside the official facilitators
                       views: writes with live views, beside the same without
  --requests <n>       requests of the case memory                                 (default 1000000)
  --sides <sides>      ${`of ${sideNames.join(', ')}`.padEnd(58)}  (default all)
  --documents <n>      documents to read from, in thousands whole                  (default 100000)
  --no-composite       single-field indexes even where composite ones exist
  --profile <side>     profiles the processes of that side, and prints where their time goes
  --out <file>         where the figures are written as JSON                       (default below the temporary folder)
  --quote <pages>      replaces the table on these pages, README.md and docs/performance.md; of all runs and sides
  --compare <file>     also prints the change since the figures of an earlier run
  --no-build           takes what was built last
  --help               this text`;

type Change = (options: Options, text: string, flag: string, folder: string) => void;

/** The change that each flag without a value makes to the options. */
const switches: Record<string, (options: Options) => void> = {
  '--quick': (options) => Object.assign(options, { rounds: 1, seconds: 1, warmUpSeconds: 0.5 }),
  '--no-composite': (options) => (options.composite = false),
  '--no-build': (options) => (options.build = false),
};

/** The change that each flag with a value makes to the options. */
const settings: Record<string, Change> = {
  '--rounds': (options, text, flag) => (options.rounds = Math.ceil(positive(text, flag))),
  '--seconds': (options, text, flag) => (options.seconds = positive(text, flag)),
  '--only': (options, text, flag) => chooseWhat(options, among(measurableNames, text, flag)),
  '--sides': (options, text, flag) => (options.sides = among(sideNames, text, flag)),
  '--documents': (options, text, flag) => (options.documents = Math.ceil(positive(text, flag) / 1000) * 1000),
  '--requests': (options, text, flag) => (options.requests = Math.ceil(positive(text, flag))),
  '--profile': (options, text, flag) => (options.profile = among(sideNames, text, flag)[0]!),
  '--out': (options, text, _flag, folder) => (options.out = path.resolve(folder, text)),
  '--quote': (options, text, _flag, folder) =>
    (options.quote = text.split(',').map((page) => path.resolve(folder, page))),
  '--compare': (options, text, _flag, folder) => (options.compare = path.resolve(folder, text)),
};

/**
 * Parses the command line; undefined for --help. Relative paths refer to `folder`. Throws an Error for unknown options.
 */
export function readOptions(args: readonly string[], folder: string): Options | undefined {
  const options: Options = {
    rounds: 3,
    seconds: 3,
    warmUpSeconds: 5,
    only: runNames,
    cases: [],
    ownCases: [],
    sides: sideNames,
    documents: 100_000,
    requests: 1_000_000,
    composite: true,
    build: true,
    quote: [],
  };
  for (let i = 0; i < args.length; i++) {
    const [flag = '', ...rest] = args[i]!.split('=');
    if (flag === '--help') return undefined;
    const setting = settings[flag];
    if (setting) {
      const value = rest.length > 0 ? rest.join('=') : args[++i];
      if (value === undefined || value === '') throw new Error(`${flag} needs a value.`);
      setting(options, value, flag, folder);
    } else {
      const change = switches[flag];
      if (!change) throw new Error(`Unknown option ${args[i]}.\n\n${help}`);
      change(options);
    }
  }
  chooseSides(options);
  if (options.quote.length > 0 && !hasAll(options)) throw new Error('--quote needs all runs on all sides.');
  return options;
}

/** Whether all runs are measured on all sides. */
export const hasAll = ({ only, sides }: Options): boolean =>
  only.length === runNames.length && sides.length === sideNames.length;

function positive(text: string, flag: string): number {
  if (!(Number(text) > 0)) throw new Error(`${flag} needs a number above 0, not ${text}.`);
  return Number(text);
}

/** Divides the names of `--only` into runs, cases and cases with processes of their own. */
function chooseWhat(options: Options, names: readonly MeasurableName[]): void {
  const isNamed = (name: MeasurableName) => names.includes(name);
  options.only = runNames.filter(isNamed);
  options.cases = cases.filter(isNamed);
  options.ownCases = ownCaseNames.filter(isNamed);
}

/** Keeps the sides that are needed. */
function chooseSides(options: Options): void {
  if (options.only.length === 0) options.sides = options.sides.filter((name) => granarySides.includes(name));
  if (options.only.length === 0 && options.cases.length === 0) options.sides = [];
  else if (options.sides.length === 0) {
    throw new Error(`The cases ${cases.join(', ')} need one of ${granarySides.join(', ')}.`);
  }
  if (options.profile && !options.sides.includes(options.profile)) options.sides = [...options.sides, options.profile];
}

/** The names in a text with commas between, in their defined order. */
function among<Name extends string>(choices: readonly Name[], text: string, flag: string): Name[] {
  const names = text.split(',');
  const unknown = names.filter((name) => !choices.some((one) => one === name));
  if (unknown.length > 0) throw new Error(`${flag} accepts ${choices.join(', ')}, not ${unknown.join(', ')}.`);
  return choices.filter((name) => names.includes(name));
}
