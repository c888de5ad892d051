import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { measureSingleDocuments, singleDocumentsLines } from './bench/single-documents.mjs';
import { besideCases, besideLines, measureBeside } from './bench/beside.mjs';
import { measureMemory, memoryGrowthLines } from './bench/endurance.mjs';
import { describeMachine, machineLine } from './bench/machine.mjs';
import { loadDocuments, measure, settle } from './bench/measure.mjs';
import { help, readOptions } from './bench/options.mjs';
import { ownCases } from './bench/own-cases.mjs';
import { startProcess } from './bench/processes.mjs';
import { measurePrices, pricesLines } from './bench/prices.mjs';
import { profileLines } from './bench/profile.mjs';
import { memoryLines, resultLines, summarize } from './bench/report.mjs';
import { bulkSize, runs } from './bench/runs.mjs';
import { sideTitles, startSide } from './bench/sides.mjs';
import { verifySides, verifyWrites } from './bench/verify.mjs';
import { prepare } from './launch.mjs';

class Interrupted extends Error {}

let interrupted = false;
const note = (text) => console.error(text);
const checkInterrupted = () => {
  if (interrupted) throw new Interrupted('interrupted');
};

async function bench(options) {
  if (options.build) await prepare(options.ownCases.includes('verifications') ? 'all' : 'run');
  // The server's user must be able to enter the folder; its contents are not accessible to others.
  const directory = await mkdtemp(path.join(os.tmpdir(), 'granary-bench-'));
  await chmod(directory, 0o755);
  const processes = [];
  const started = (child) => processes.push(child);
  try {
    const machine = await describeMachine(directory);
    console.log(machineLine(machine));
    const postgres = startProcess('postgres.mjs');
    started(postgres);
    const { pid: postgresPid } = await postgres.call('start', path.join(directory, 'postgres'));
    const load = startProcess('load.mjs');
    started(load);
    const neighbour = startProcess('load.mjs');
    started(neighbour);
    const tools = { postgres, load, neighbour, postgresPid, directory, started };

    const sides = await startSides(tools, options);
    await postgres.call('tidy');
    if (sides.length > 0) {
      await verifySides(sides, options.documents);
      note('All sides give the same answers.');
    }
    const measurements = await measureAll(tools, sides, options);
    const cases = await measureCases(tools, sides, options);
    await verifyWrites(sides);

    const results = summarize(measurements);
    const earlier = options.compare && JSON.parse(readFileSync(options.compare, 'utf8'));
    if (earlier) console.log(`compared with ${earlier.at}: ${machineLine(earlier.machine)}`);
    for (const line of resultLines(results, earlier?.results)) console.log(line);
    if (options.only.length > 0) for (const line of memoryLines(results)) console.log(line);
    const out = options.out ?? defaultOut();
    mkdirSync(path.dirname(out), { recursive: true });
    const notes = Object.fromEntries(sides.map((side) => [side.name, side.notes]));
    writeFileSync(
      out,
      JSON.stringify({ at: new Date().toISOString(), machine, options, notes, results, cases }, null, 2),
    );
    console.log(`\nwritten to ${out}`);
    if (options.profile) await profile(tools, sides, options, out);
  } finally {
    for (const child of processes.reverse()) await child.stop();
    await rm(directory, { recursive: true, force: true });
  }
}

/** Starts the selected sides, and stores the same documents in each through its API. */
async function startSides({ postgres, load, directory, started }, options) {
  const sides = [];
  for (const name of options.sides) {
    checkInterrupted();
    // As npm start has it: answers 402 offer payments.
    const settings = { payments: { X402_PAY_TO: 'wallets,simulated' } };
    const side = await startSide(name, { postgres, directory, started, settings, wantsComposite: options.composite });
    const { requests, elapsedMs } = await loadDocuments(load, side, options.documents);
    const storedCount = requests * bulkSize;
    const rate = Math.round((storedCount * 1000) / elapsedMs);
    const loaded = `${storedCount.toLocaleString('en-US')} documents in ${(elapsedMs / 1000).toFixed(1)} s (${rate}/s)`;
    console.log(`${name.padEnd(9)} ${[`${sideTitles[name]}; ${loaded}`, ...side.notes].join('; ')}`);
    sides.push({ ...side, accepted: { documents: storedCount, writes: 0, files: 0 } });
  }
  return sides;
}

/** Measures all runs: `{run: {side: [measurement of each round]}}`. The order of the sides changes every round. */
async function measureAll(tools, sides, options) {
  const measurements = {};
  const runOnce = async (side, run, seconds) => {
    checkInterrupted();
    const measured = await measure(tools, side, run, seconds);
    await settle(sides, tools.postgresPid);
    return measured;
  };
  for (const run of options.only) {
    measurements[run] = Object.fromEntries(sides.map(({ name }) => [name, []]));
    for (const side of sides) await runOnce(side, run, options.warmUpSeconds);
  }
  for (let round = 0; round < options.rounds; round++) {
    for (const run of options.only) {
      const first = round % sides.length;
      const order = [...sides.slice(first), ...sides.slice(0, first)];
      for (const side of order) measurements[run][side.name].push(await runOnce(side, run, options.seconds));
      const rates = sides.map(({ name }) => `${name} ${Math.round(measurements[run][name].at(-1).perSecond)}`);
      note(`round ${round + 1} of ${options.rounds}, ${run}: ${rates.join(', ')} ${runs[run].unit}/s`);
    }
  }
  return measurements;
}

/**
 * `{case: {side: measurement}}` of the Granary sides; `{case: measurement}` of cases in their own processes. Each
 * result is printed as soon as it is available.
 */
async function measureCases(tools, sides, options) {
  const { cases, rounds, seconds, requests } = options;
  const measured = {};
  for (const name of cases) {
    measured[name] = {};
    for (const side of sides.filter(({ openApp }) => openApp)) {
      checkInterrupted();
      note(`${name}, ${side.name}`);
      if (name in besideCases) measured[name][side.name] = await measureBeside(tools, side, name, { rounds, seconds });
      else if (name === 'documents')
        measured[name][side.name] = await measureSingleDocuments(tools, side, { rounds, seconds });
      else if (name === 'prices') measured[name][side.name] = await measurePrices(tools, side, { rounds, seconds });
      else measured[name][side.name] = await measureMemory(tools, side, requests);
    }
    for (const line of caseLines(name, measured[name])) console.log(line);
  }
  for (const name of options.ownCases) {
    checkInterrupted();
    note(name);
    measured[name] = await ownCases[name].measure(tools, options);
    for (const line of caseLines(name, measured[name])) console.log(line);
  }
  return measured;
}

function caseLines(name, results) {
  if (name in ownCases) return ownCases[name].lines(results);
  if (name === 'documents') return singleDocumentsLines(results);
  if (name === 'prices') return pricesLines(results);
  return name in besideCases ? besideLines(name, results) : memoryGrowthLines(results);
}

/** Last, because a profiler slows the process down. */
async function profile(tools, sides, options, out) {
  const side = sides.find(({ name }) => name === options.profile);
  for (const run of options.only) {
    checkInterrupted();
    for (const { child } of side.children) await child.call('startProfile');
    await measure(tools, side, run, options.seconds);
    for (const { process, child } of side.children) {
      const file = `${out.replace(/\.json$/, '')}-${run}-${side.name}-${process}.cpuprofile`;
      await child.call('stopProfile', file);
      console.log(`\n${run}, ${side.name}, ${process}: ${file}`);
      for (const line of profileLines(file)) console.log(line);
    }
  }
}

function defaultOut() {
  const time = new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, '').replace('T', '-');
  return path.join(os.tmpdir(), `granary-bench-${time}.json`);
}

// The first signal lets the current run finish and then stops everything in order; children end with this process in
// any case.
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => (interrupted = true));

try {
  const options = readOptions(process.argv.slice(2));
  if (options === undefined) console.log(help);
  else await bench(options);
} catch (error) {
  console.error(error instanceof Interrupted ? 'Interrupted.' : error.message);
  process.exitCode = 1;
}
