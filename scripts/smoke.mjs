import { spawn } from 'node:child_process';
import { cpSync, existsSync, lstatSync, mkdtempSync, readFileSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { runChild } from './child.mjs';

/**
 * @import { ChildProcessByStdio } from 'node:child_process'
 * @import { Readable } from 'node:stream'
 * @typedef {ChildProcessByStdio<null, Readable, Readable>} Child
 * @typedef {{ code: number | null, signal: NodeJS.Signals | null }} Exit
 */

const readyTimeoutMs = 300_000;
const stopTimeoutMs = 5000;
/** What a start may install, on the disk. */
const packagesMaxMib = 200;

/**
 * The first start of a new user: a clean copy of the checkout, without packages and build, is started with one command,
 * stores a document and lists it, and is stopped. Throws an error for what failed.
 * @param {string} root
 */
export async function smoke(root) {
  const checkout = mkdtempSync(path.join(os.tmpdir(), 'granary-smoke-'));
  const dataDir = mkdtempSync(path.join(os.tmpdir(), 'granary-smoke-data-'));
  /** @type {Child | undefined} */
  let child;
  try {
    await copyCheckout(root, checkout);
    const args = ['scripts/start.mjs', '--port', '0', '--data-dir', dataDir];
    /** @type {NodeJS.ProcessEnv} */
    const env = { ...process.env, npm_config_prefer_offline: 'true' };
    for (const name of ['PORT', 'DATA_DIR', 'OPERATOR_KEY', 'npm_lifecycle_event']) delete env[name];
    child = spawn(process.execPath, args, { cwd: checkout, env, stdio: ['ignore', 'pipe', 'pipe'] });
    const output = collect(child);
    const exit = exitOf(child);

    const url = await waitFor(output, exit, /^Granary is ready at (http:\/\/127\.0\.0\.1:\d+)\s*$/m);
    const app = await waitFor(output, exit, /^\s*demo app: (\S+)\s*$/m);
    const key = await waitFor(output, exit, /^\s*demo app key: (\S+)\s*$/m);
    for (const title of ['Installing packages', 'Building', 'Creating the database']) {
      const lines = new RegExp(`^${title} …$[^]*^${title}: done in .+ s$`, 'm');
      check(
        lines.test(output.text),
        `the start says what it does, and how long that took: ${lines}; its output:\n${output.text}`,
      );
    }
    const installedMib = mibOf(path.join(checkout, 'node_modules'));
    check(installedMib <= packagesMaxMib, `a start installs at most ${packagesMaxMib} MiB, not ${installedMib}`);
    await useIt(url, app, key);
    const processes = processesOf(checkout, dataDir);
    check(processes.length >= 2, `Node and Postgres run (found ${processes.length} processes)`);

    child.kill('SIGTERM');
    const ended = await Promise.race([exit, delay(stopTimeoutMs, undefined, { ref: false })]);
    check(ended !== undefined, `it ends within ${stopTimeoutMs} ms of SIGTERM; its output:\n${output.text}`);
    check(ended.code === 0, `it ends cleanly, not with ${JSON.stringify(ended)}; its output:\n${output.text}`);
    const left = processesOf(checkout, dataDir);
    check(left.length === 0, `no process is left, not ${left.join(', ')}`);
    check(!existsSync(path.join(dataDir, 'postgres/postmaster.pid')), 'Postgres has shut down in order');
  } finally {
    if (child && child.exitCode === null) child.kill('SIGKILL');
    for (const pid of processesOf(checkout, dataDir)) endProcess(pid);
    for (const folder of [checkout, dataDir]) rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
  }
}

/** @param {string} url @param {string} app @param {string} key */
async function useIt(url, app, key) {
  const health = await fetch(`${url}/health`);
  check(health.status === 200, `GET /health answers 200, not ${health.status} ${await health.text()}`);

  const post = async (/** @type {string} */ route, /** @type {object} */ body) => {
    const headers = { 'content-type': 'application/json', 'x-app-key': key };
    const response = await fetch(url + route, { method: 'POST', headers, body: JSON.stringify(body) });
    const answer = /** @type {{ records?: Record<string, unknown>[], total?: number }} */ (await response.json());
    return { status: response.status, body: answer };
  };
  const document = { id: 'smoke', title: 'Grüße 🌾', price: 12.5 };
  const stored = await post('/store', { root: `${app}::smoke`, data: [document] });
  check(stored.status === 202, `POST /store answers 202, not ${JSON.stringify(stored)}`);
  const listed = await post('/list', { root: `${app}::smoke`, find: { id: 'smoke' } });
  const record = listed.body.records?.[0];
  const same = Object.entries(document).every(([name, value]) => record?.[name] === value);
  check(
    listed.status === 200 && listed.body.total === 1 && same,
    `the document is listed, not ${JSON.stringify(listed)}`,
  );
}

/** The files of a clone of the current state. @param {string} root @param {string} target */
async function copyCheckout(root, target) {
  const listed = await runChild('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: root });
  if (listed.code !== 0) throw new Error(`git ls-files failed: ${listed.output}`);
  for (const file of listed.output.split('\0')) {
    if (file !== '' && existsSync(path.join(root, file))) cpSync(path.join(root, file), path.join(target, file));
  }
}

/** What a folder takes on the disk, as `du -m` counts it. @param {string} folder */
function mibOf(folder) {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  const blocks = entries.map(({ parentPath, name }) => lstatSync(path.join(parentPath, name)).blocks);
  return Math.ceil((blocks.reduce((sum, each) => sum + each, 0) * 512) / 1024 ** 2);
}

/** @param {Child} child @returns {Promise<Exit>} */
const exitOf = (child) => new Promise((resolve) => child.once('exit', (code, signal) => resolve({ code, signal })));

/** What a child has printed so far. @param {Child} child */
function collect(child) {
  const output = { text: '' };
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text) => (output.text += text));
  return output;
}

/**
 * The text that the group of a pattern has in the output, once it is there.
 * @param {{ text: string }} output @param {Promise<Exit>} exit @param {RegExp} pattern
 */
async function waitFor(output, exit, pattern) {
  let ended = false;
  void exit.then(() => (ended = true));
  const deadline = Date.now() + readyTimeoutMs;
  for (;;) {
    const text = pattern.exec(output.text)?.[1];
    if (text !== undefined) return text;
    check(!ended && Date.now() < deadline, `the start prints ${pattern}; its output:\n${output.text}`);
    await delay(50);
  }
}

/** Processes started in or on one of the two folders; Linux only. @param {string} checkout @param {string} dataDir */
function processesOf(checkout, dataDir) {
  if (process.platform !== 'linux') return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => {
      try {
        const text = readFileSync(`/proc/${pid}/cmdline`, 'utf8') + readlinkSync(`/proc/${pid}/cwd`);
        return text.includes(checkout) || text.includes(dataDir);
      } catch {
        // It has ended meanwhile, or belongs to another user.
        return false;
      }
    });
}

/** @param {string} pid */
function endProcess(pid) {
  try {
    process.kill(Number(pid), 'SIGKILL');
  } catch {
    // It has ended already.
  }
}

/** @param {boolean} holds @param {string} expectation @returns {asserts holds} */
function check(holds, expectation) {
  if (!holds) throw new Error(`expected that ${expectation}`);
}
