import { limitMs } from '@granary/testing/speed';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { runChild } from '../child.mjs';

export const namespace = 'granary';
/** Where this machine is seen from the pods of the cluster, see deploy/kube/env.sh. */
export const hostAddress = '10.99.0.1';

/** Of each command, in the report of a failure. */
const linesShown = 40;
/** Of each log of Kubernetes itself. */
const systemLinesShown = 10;
const describeLimitMs = 60_000;
const answerLimit = '10s';
const startLimitMs = 120_000;
/** The state of another machine or container that shares the cache is abandoned after this long. */
const foreignStateMs = 86_400_000;

/**
 * A real Kubernetes in namespaces of its own on this machine, by the scripts of deploy/kube. Root only. It ends with
 * this process at the latest.
 */
export class Cluster {
  /** `home` keeps the programs of Kubernetes, `helm` is the file of Helm. The abort of `signal` kills what it runs. */
  constructor({ root, home, helm, nodes, signal, say }) {
    Object.assign(this, { signal, say });
    this.scripts = path.join(root, 'deploy/kube');
    this.helmFile = helm;
    this.home = home;
    // A short name: paths of sockets are limited. The number of a process is not unique among containers.
    this.state = path.join(home, `run-${process.pid}-${randomBytes(2).toString('hex')}`);
    const [owner, timeout] = [process.pid, Math.ceil(limitMs(startLimitMs) / 1_000)].map(String);
    const own = { KUBE_HOME: home, KUBE_NODES: String(nodes), KUBE_STATE: this.state, KUBE_OWNER: owner };
    this.env = { ...process.env, ...own, KUBE_TIMEOUT: timeout };
  }

  /** Compiles Kubernetes if it has not been. */
  async build() {
    await this.script('build.sh');
  }

  async up() {
    const { identify } = await import('@granary/local/processes/processes');
    await this.removeAbandoned();
    mkdirSync(this.state, { recursive: true });
    writeFileSync(path.join(this.state, 'owner'), identify(process.pid));
    await this.script('up.sh');
  }

  /**
   * Removes what is left of processes that were killed together with their clusters. This one needs none of it to
   * succeed.
   */
  async removeAbandoned() {
    const { isAbandoned } = await import('@granary/local/processes/processes');
    mkdirSync(this.home, { recursive: true });
    for (const name of readdirSync(this.home)) {
      const state = path.join(this.home, name);
      const owner = path.join(state, 'owner');
      if (!name.startsWith('run-') || !existsSync(owner)) continue;
      if (!(await isAbandoned(readFileSync(owner, 'utf8'), owner, foreignStateMs))) continue;
      await this.script('down.sh', { env: { KUBE_STATE: state } }).catch((error) => this.say(error.message));
    }
  }

  /** Ends it with everything in it. */
  async down() {
    await this.script('down.sh', { isAbortable: false });
  }

  async load(archive) {
    await this.script('load.sh', { args: [archive] });
  }

  /** Runs a program in the network of the cluster, and returns what it prints. Throws with its errors if it fails. */
  async run(...command) {
    return this.script('in.sh', { args: command });
  }

  kubectl(...args) {
    return this.run('kubectl', '--namespace', namespace, ...args);
  }

  /** Makes or changes resources in the namespace. */
  async apply(...resources) {
    const file = path.join(this.state, 'apply.json');
    writeFileSync(file, JSON.stringify({ apiVersion: 'v1', kind: 'List', items: resources }));
    await this.kubectl('apply', '-f', file);
  }

  helm(...args) {
    return this.run(this.helmFile, '--namespace', namespace, ...args);
  }

  /**
   * Starts a program in the network of the cluster that goes on, until this process ends. `name` is that of its log,
   * which has its error output, and its output too unless `isPiped`.
   */
  start(name, command, { env = {}, isPiped = false } = {}) {
    const log = openSync(this.logFile(`${name}.log`), 'a');
    try {
      return spawn(path.join(this.scripts, 'in.sh'), ['setpriv', '--pdeathsig=KILL', ...command], {
        env: { ...this.env, ...env },
        cwd: '/',
        stdio: ['ignore', isPiped ? 'pipe' : log, log],
      });
    } finally {
      closeSync(log);
    }
  }

  logFile(name) {
    return path.join(this.state, 'log', name);
  }

  /**
   * For the report of a failure: what the pods do, the logs of those that were restarted or are not ready, and the ends
   * of the logs of all that is not in a pod. Never throws.
   */
  async describe() {
    this.signal = AbortSignal.timeout(describeLimitMs);
    const ask = (...args) => this.kubectl(`--request-timeout=${answerLimit}`, ...args).catch((error) => error.message);
    const texts = [
      await ask('get', 'pods', '--all-namespaces', '--output=wide'),
      await ask('get', 'events', '--sort-by=.lastTimestamp'),
    ];
    for (const name of troubledPods(await ask('get', 'pods', '--output=json'))) {
      texts.push(await ask('describe', 'pod', name), await ask('logs', '--all-containers', '--prefix', name));
      texts.push(await ask('logs', '--previous', name));
    }
    return [...texts.map((text) => lastLines(text, linesShown)), ...this.readLogs()].join('\n\n');
  }

  readLogs() {
    const folder = this.logFile('');
    if (!existsSync(folder)) return [];
    return readdirSync(folder).map(
      (name) => `${name}:\n${lastLines(readFileSync(this.logFile(name), 'utf8'), systemLinesShown)}`,
    );
  }

  /** Returns what it prints, without its error output. */
  async script(name, { args = [], env = {}, isAbortable = true } = {}) {
    const { code, output, stdout } = await runChild(path.join(this.scripts, name), args, {
      env: { ...this.env, ...env },
      signal: isAbortable ? this.signal : undefined,
    });
    if (code !== 0) throw new Error(`${name} ${args.join(' ')} failed:\n${output.trim()}`);
    return stdout;
  }
}

/** The names of those in a list by kubectl that were restarted, failed or are not ready; none if it is no list. */
function troubledPods(list) {
  try {
    return JSON.parse(list)
      .items.filter(({ status: { phase, containerStatuses = [] } }) => {
        if (phase === 'Succeeded') return false;
        return phase !== 'Running' || containerStatuses.some(({ ready, restartCount }) => !ready || restartCount > 0);
      })
      .map(({ metadata }) => metadata.name);
  } catch {
    // The API server does not answer, which the other texts show.
    return [];
  }
}

export const lastLines = (text, count) => text.trim().split('\n').slice(-count).join('\n');
