import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { measureSingleDocuments, singleDocumentsLines } from './single-documents';
import { besideLines, isBesideCase, measureBeside } from './beside';
import { measureMemory, memoryGrowthLines } from './endurance';
import type { LoadCalls } from './load';
import { describeMachine, machineLine, type Machine } from './machine';
import { loadDocuments, measure, settle, type Measurement } from './measure';
import { hasAll, help, readOptions, type Options, type SideCaseName } from './options';
import { ownCases } from './own-cases';
import type { PostgresCalls } from './postgres';
import { startProcess, type RunningProcess } from './processes';
import { measurePrices, pricesLines } from './prices';
import { profileLines } from './profile';
import { checkPages, quotedTable, quoteOn } from './quoted-table';
import { memoryLines, resultLines, summarize, type ByRunAndSide, type Results } from './report';
import { bulkSize, runs, type RunName } from './runs';
import { isGranary, sideTitles, startSide, type GranarySide, type Side } from './sides';
import type { Tools } from './tools';
import { verifySides, verifyWrites } from './verify';

class Interrupted extends Error {}

let isInterrupted = false;
const note = (text: string) => console.error(text);
const checkInterrupted = () => {
  if (isInterrupted) throw new Interrupted('interrupted');
};

/** The content of the file that `--out` writes and `--compare` reads. */
interface Figures {
  at: string;
  machine: Machine;
  options: Options;
  notes: Record<string, string[]>;
  results: Results;
  cases: Record<string, object>;
}

/**
 * Runs the benchmark as the arguments of the command line say. Relative paths in them refer to `folder`. Prints an
 * error, and sets the exit code, instead of throwing it.
 */
export async function main(args: readonly string[], folder: string): Promise<void> {
  // The first signal lets the current run finish and then stops everything in order; children end with this process in
  // any case.
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => (isInterrupted = true));
  try {
    const options = readOptions(args, folder);
    if (options === undefined) console.log(help);
    else await bench(options);
  } catch (error) {
    console.error(error instanceof Interrupted ? 'Interrupted.' : (error as Error).message);
    process.exitCode = 1;
  }
}

async function bench(options: Options): Promise<void> {
  checkPages(options.quote);
  // The server's user must be able to enter the folder; its contents are not accessible to others.
  const directory = await mkdtemp(path.join(os.tmpdir(), 'granary-bench-'));
  await chmod(directory, 0o755);
  const processes: RunningProcess[] = [];
  try {
    const machine = await describeMachine(directory);
    console.log(machineLine(machine));
    const tools = await startTools(directory, (child) => processes.push(child));
    const sides = await startSides(tools, options);
    await tools.postgres.call('tidy');
    if (sides.length > 0) {
      await verifySides(sides, options.documents);
      note('All sides give the same answers.');
    }
    const measurements = await measureAll(tools, sides, options);
    const cases = await measureCases(tools, sides, options);
    await verifyWrites(sides);

    const results = summarize(measurements);
    const earlier = options.compare && (JSON.parse(readFileSync(options.compare, 'utf8')) as Figures);
    if (earlier) console.log(`compared with ${earlier.at}: ${machineLine(earlier.machine)}`);
    for (const line of resultLines(results, earlier ? earlier.results : undefined)) console.log(line);
    if (options.only.length > 0) for (const line of memoryLines(results)) console.log(line);
    const out = options.out ?? defaultOut();
    const notes = Object.fromEntries(sides.map((side) => [side.name, side.notes]));
    const at = new Date().toISOString();
    write(out, { at, machine, options, notes, results, cases });
    console.log(`\nwritten to ${out}`);
    if (hasAll(options)) {
      const table = quotedTable(results, { machine, options, at });
      console.log(`\n${table}`);
      quoteOn(options.quote, table);
    }
    if (options.profile) await profile(tools, sides, options, out);
  } finally {
    for (const child of processes.reverse()) await child.stop();
    await rm(directory, { recursive: true, force: true });
  }
}

async function startTools(directory: string, onStart: Tools['onStart']): Promise<Tools> {
  const postgres = startProcess<PostgresCalls>('postgres.js');
  onStart(postgres);
  const { pid: postgresPid } = await postgres.call('start', path.join(directory, 'postgres'));
  const load = startProcess<LoadCalls>('load.js');
  onStart(load);
  const neighbour = startProcess<LoadCalls>('load.js');
  onStart(neighbour);
  return { postgres, load, neighbour, postgresPid, directory, onStart };
}

/** Starts the selected sides, and stores the same documents in each through its API. */
async function startSides({ postgres, load, directory, onStart }: Tools, options: Options): Promise<Side[]> {
  const sides: Side[] = [];
  for (const name of options.sides) {
    checkInterrupted();
    // This is the setting of npm start: answers 402 offer payments.
    const settings = { payments: { X402_PAY_TO: 'wallets,simulated' } };
    const side = await startSide(name, { postgres, directory, onStart, settings, wantsComposite: options.composite });
    const { requests, elapsedMs } = await loadDocuments(load, side, options.documents);
    side.accepted.documents = requests * bulkSize;
    const rate = Math.round((side.accepted.documents * 1000) / elapsedMs);
    const count = side.accepted.documents.toLocaleString('en-US');
    const loaded = `${count} documents in ${(elapsedMs / 1000).toFixed(1)} s (${rate}/s)`;
    console.log(`${name.padEnd(9)} ${[`${sideTitles[name]}; ${loaded}`, ...side.notes].join('; ')}`);
    sides.push(side);
  }
  return sides;
}

/** Measures all rounds of all runs. The order of the sides changes every round. */
async function measureAll(tools: Tools, sides: Side[], options: Options): Promise<ByRunAndSide<Measurement[]>> {
  const measurements: ByRunAndSide<Measurement[]> = {};
  const runOnce = async (side: Side, run: RunName, seconds: number) => {
    checkInterrupted();
    const measurement = await measure(tools, side, run, seconds);
    await settle(sides, tools.postgresPid);
    return measurement;
  };
  for (const run of options.only) {
    measurements[run] = Object.fromEntries(sides.map(({ name }) => [name, []]));
    for (const side of sides) await runOnce(side, run, options.warmUpSeconds);
  }
  for (let round = 0; round < options.rounds; round++) {
    for (const run of options.only) {
      const first = round % sides.length;
      const order = [...sides.slice(first), ...sides.slice(0, first)];
      for (const side of order) measurements[run]![side.name]!.push(await runOnce(side, run, options.seconds));
      const rates = sides.map(({ name }) => `${name} ${Math.round(measurements[run]![name]!.at(-1)!.perSecond)}`);
      note(`round ${round + 1} of ${options.rounds}, ${run}: ${rates.join(', ')} ${runs[run].unit}/s`);
    }
  }
  return measurements;
}

/**
 * Measures the cases. Returns the results by case: of a case of the sides, the results by Granary side; of a case in
 * its own processes, its result. Each result is printed as soon as it is available.
 */
async function measureCases(tools: Tools, sides: Side[], options: Options): Promise<Record<string, object>> {
  const results: Record<string, object> = {};
  for (const name of options.cases) results[name] = await measureCase(tools, sides.filter(isGranary), name, options);
  for (const name of options.ownCases) {
    checkInterrupted();
    note(name);
    const { result, lines } = await ownCases[name](tools, options);
    results[name] = result;
    for (const line of lines) console.log(line);
  }
  return results;
}

function measureCase(tools: Tools, sides: GranarySide[], name: SideCaseName, options: Options): Promise<object> {
  const measureSides = async <Result>(
    measureOne: (side: GranarySide) => Promise<Result>,
    linesOf: (results: Record<string, Result>) => string[],
  ) => {
    const results: Record<string, Result> = {};
    for (const side of sides) {
      checkInterrupted();
      note(`${name}, ${side.name}`);
      results[side.name] = await measureOne(side);
    }
    for (const line of linesOf(results)) console.log(line);
    return results;
  };
  if (isBesideCase(name)) {
    return measureSides(
      (side) => measureBeside(tools, side, name, options),
      (results) => besideLines(name, results),
    );
  }
  if (name === 'documents') {
    return measureSides((side) => measureSingleDocuments(tools, side, options), singleDocumentsLines);
  }
  if (name === 'prices') return measureSides((side) => measurePrices(tools, side, options), pricesLines);
  return measureSides((side) => measureMemory(tools, side, options.requests), memoryGrowthLines);
}

/** Profiles a side. This comes last, because a profiler slows the process down. */
async function profile(tools: Tools, sides: Side[], options: Options, out: string): Promise<void> {
  const side = sides.find(({ name }) => name === options.profile)!;
  for (const run of options.only) {
    checkInterrupted();
    for (const { child } of side.children) await child.startProfile();
    await measure(tools, side, run, options.seconds);
    for (const { process, child } of side.children) {
      const file = `${out.replace(/\.json$/, '')}-${run}-${side.name}-${process}.cpuprofile`;
      await child.stopProfile(file);
      console.log(`\n${run}, ${side.name}, ${process}: ${file}`);
      for (const line of profileLines(file)) console.log(line);
    }
  }
}

function write(file: string, figures: Figures): void {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, JSON.stringify(figures, null, 2));
}

function defaultOut(): string {
  const time = new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, '').replace('T', '-');
  return path.join(os.tmpdir(), `granary-bench-${time}.json`);
}
