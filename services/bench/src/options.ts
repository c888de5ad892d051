import path from 'node:path';
import { besideCases } from './beside.mjs';
import { ownCases } from './own-cases.mjs';
import { runs } from './runs.mjs';
import { sideTitles } from './sides.mjs';

/** Cases beyond the runs, measured only for Granary. */
const cases = [...Object.keys(besideCases), 'documents', 'memory', 'prices'];
const granarySides = ['embedded', 'split'];

export const help = `Measures Granary beside two baselines, on one Postgres of its own, in one go.

  npm run bench -- [options]

  --quick              one round of one second each, for a first look
  --rounds <n>         rounds, in each of which every side runs everything once    (default 3)
  --seconds <n>        length of one run                                           (default 3)
  --only <runs>        ${`of ${Object.keys(runs).join(', ')}`.padEnd(58)}  (default all)
                       or cases, of Granary alone:
                       fairness: an app beside a slow reader and beside a flood of another app
                       strangers: an app beside the dearest reads of another one without a key
                       mixed: single inserts beside a bulk load of another and of the same app
                       documents: single documents and batches beside /store and point reads
                       memory: what processes hold after many requests; takes minutes
                       prices: reads that cost something, unpaid and paid, beside plain ones
                       or parts of it with processes of their own:
                       events: the bus, on both transports; Kafka needs Java
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
                       verifications: of x402 payments, beside the official facilitators
                       views: writes with live views, beside the same without
  --requests <n>       requests of the case memory                                 (default 1000000)
  --sides <sides>      ${`of ${Object.keys(sideTitles).join(', ')}`.padEnd(58)}  (default all)
  --documents <n>      documents to read from, in thousands whole                  (default 100000)
  --no-composite       single-field indexes even where composite ones exist
  --profile <side>     profiles the processes of that side, and prints where their time goes
  --out <file>         where the figures are written as JSON                       (default below the temporary folder)
  --compare <file>     also prints the change since the figures of an earlier run
  --no-build           takes what was built last
  --help               this text`;

/** Parses the command line; undefined for --help. Throws an Error for unknown options. */
export function readOptions(args) {
  const options = {
    rounds: 3,
    seconds: 3,
    warmUpSeconds: 5,
    only: Object.keys(runs),
    sides: Object.keys(sideTitles),
    documents: 100_000,
    requests: 1_000_000,
    composite: true,
    build: true,
  };
  for (let i = 0; i < args.length; i++) {
    const [flag, ...rest] = args[i].split('=');
    if (flag === '--help') return undefined;
    const setting = settings[flag];
    if (!setting) throw new Error(`Unknown option ${args[i]}.\n\n${help}`);
    // A setting that has a parameter besides the options takes a value.
    const value = setting.length === 1 ? undefined : rest.length > 0 ? rest.join('=') : args[++i];
    if (setting.length > 1 && (value === undefined || value === '')) throw new Error(`${flag} needs a value.`);
    setting(options, value, flag);
  }
  chooseSides(options);
  return options;
}

/** What each flag does to the options; those without a value have one parameter. */
const settings = {
  '--quick': (options) => Object.assign(options, { rounds: 1, seconds: 1, warmUpSeconds: 0.5 }),
  '--rounds': (options, text, flag) => (options.rounds = Math.ceil(positive(text, flag))),
  '--seconds': (options, text, flag) => (options.seconds = positive(text, flag)),
  '--only': (options, text, flag) =>
    (options.only = among([...Object.keys(runs), ...cases, ...Object.keys(ownCases)], text, flag)),
  '--sides': (options, text, flag) => (options.sides = among(Object.keys(sideTitles), text, flag)),
  '--documents': (options, text, flag) => (options.documents = Math.ceil(positive(text, flag) / 1000) * 1000),
  '--requests': (options, text, flag) => (options.requests = Math.ceil(positive(text, flag))),
  '--no-composite': (options) => (options.composite = false),
  '--profile': (options, text, flag) => ([options.profile] = among(Object.keys(sideTitles), text, flag)),
  '--out': (options, text) => (options.out = path.resolve(here(), text)),
  '--compare': (options, text) => (options.compare = path.resolve(here(), text)),
  '--no-build': (options) => (options.build = false),
};

/** npm changes to the project's folder and passes the user's directory, to which relative paths refer. */
const here = () => (process.env.npm_lifecycle_event && process.env.INIT_CWD) || process.cwd();

function positive(text, flag) {
  if (!(Number(text) > 0)) throw new Error(`${flag} needs a number above 0, not ${text}.`);
  return Number(text);
}

/**
 * Divides what `--only` names into runs, cases and cases with processes of their own, and keeps the sides they need.
 */
function chooseSides(options) {
  options.cases = options.only.filter((name) => cases.includes(name));
  options.ownCases = options.only.filter((name) => name in ownCases);
  options.only = options.only.filter((name) => name in runs);
  if (options.only.length === 0) options.sides = options.sides.filter((name) => granarySides.includes(name));
  if (options.only.length === 0 && options.cases.length === 0) options.sides = [];
  else if (options.sides.length === 0) {
    throw new Error(`The cases ${cases.join(', ')} need one of ${granarySides.join(', ')}.`);
  }
  if (options.profile && !options.sides.includes(options.profile)) options.sides.push(options.profile);
}

function among(known, text, flag) {
  const names = text.split(',');
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length > 0) throw new Error(`${flag} accepts ${known.join(', ')}, not ${unknown.join(', ')}.`);
  // In the defined order, regardless of the requested one.
  return known.filter((name) => names.includes(name));
}
