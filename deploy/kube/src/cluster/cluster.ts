import { identify, isAbandoned } from '@granary/local/processes/processes';
import { limitMs } from '@granary/testing/speed';
import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { runChild } from '../child';
import type { Say } from '../say';
import type { List, Pod, Resource } from './kubernetes';

export const namespace = 'granary';
/** The address by which the pods of the cluster reach this machine, see deploy/kube/env.sh. */
export const hostAddress = '10.99.0.1';

/** The number of lines of each command's output in the report of a failure. */
const linesShown = 40;
/** The number of lines of each log of Kubernetes itself in that report. */
const systemLinesShown = 10;
const describeLimitMs = 60_000;
const answerLimit = '10s';
const startLimitMs = 120_000;
/** The state of another machine or container that shares the cache counts as abandoned after this long. */
const foreignStateMs = 86_400_000;

export interface ClusterOptions {
  /** The folder of the checkout. */
  root: string;
  /** The folder that keeps the programs of Kubernetes. */
  home: string;
  /** The path of the program Helm. */
  helm: string;
  /** The number of nodes. */
  nodes: number;
  /** When it is aborted, the scripts and the commands under way are killed. */
  signal: AbortSignal;
  say: Say;
}

/** The options of a run of a script of deploy/kube. */
interface ScriptOptions {
  args?: readonly string[];
  env?: NodeJS.ProcessEnv;
  isAbortable?: boolean;
}

/**
 * A real Kubernetes in namespaces of its own on this machine, by the scripts of deploy/kube. Root only. It ends with
 * this process at the latest.
 */
export class Cluster {
  /** The folder of the scripts. */
  readonly scripts: string;
  /** The folder of what belongs to this cluster alone. */
  readonly state: string;
  /** The program that `helm` runs. */
  helmFile: string;
  private readonly home: string;
  private readonly env: NodeJS.ProcessEnv;
  private readonly say: Say;
  private signal: AbortSignal;

  constructor({ root, home, helm, nodes, signal, say }: ClusterOptions) {
    this.signal = signal;
    this.say = say;
    this.scripts = path.join(root, 'deploy/kube');
    this.helmFile = helm;
    this.home = home;
    // The name is short because paths of sockets are limited. The number of a process is not unique among containers.
    this.state = path.join(home, `run-${process.pid}-${randomBytes(2).toString('hex')}`);
    this.env = {
      ...process.env,
      KUBE_HOME: home,
      KUBE_NODES: String(nodes),
      KUBE_STATE: this.state,
      KUBE_OWNER: String(process.pid),
      KUBE_TIMEOUT: String(Math.ceil(limitMs(startLimitMs) / 1_000)),
    };
  }

  /** Compiles Kubernetes unless that was done before. */
  async build(): Promise<void> {
    await this.script('build.sh');
  }

  async up(): Promise<void> {
    await this.removeAbandoned();
    mkdirSync(this.state, { recursive: true });
    writeFileSync(path.join(this.state, 'owner'), identify(process.pid) ?? '');
    await this.script('up.sh');
  }

  /**
   * Removes what is left of processes that were killed together with their clusters. Errors are only printed: this
   * cluster does not need that to succeed.
   */
  private async removeAbandoned(): Promise<void> {
    mkdirSync(this.home, { recursive: true });
    for (const name of readdirSync(this.home)) {
      const state = path.join(this.home, name);
      const owner = path.join(state, 'owner');
      if (!name.startsWith('run-') || !existsSync(owner)) continue;
      if (!(await isAbandoned(readFileSync(owner, 'utf8'), owner, foreignStateMs))) continue;
      await this.script('down.sh', { env: { KUBE_STATE: state } }).catch((error: Error) => this.say(error.message));
    }
  }

  /** Ends the cluster with everything in it. */
  async down(): Promise<void> {
    await this.script('down.sh', { isAbortable: false });
  }

  async load(archive: string): Promise<void> {
    await this.script('load.sh', { args: [archive] });
  }

  /** Runs a program in the network of the cluster, and returns what it prints. Throws with its errors if it fails. */
  async run(...command: string[]): Promise<string> {
    return this.script('in.sh', { args: command });
  }

  kubectl(...args: string[]): Promise<string> {
    return this.run('kubectl', '--namespace', namespace, ...args);
  }

  /** Makes or changes resources in the namespace. */
  async apply(...resources: Resource[]): Promise<void> {
    const file = path.join(this.state, 'apply.json');
    writeFileSync(file, JSON.stringify({ apiVersion: 'v1', kind: 'List', items: resources }));
    await this.kubectl('apply', '-f', file);
  }

  helm(...args: string[]): Promise<string> {
    return this.run(this.helmFile, '--namespace', namespace, ...args);
  }

  /**
   * Starts a program in the network of the cluster, which runs until this process ends. The log `name` has its error
   * output, and its standard output too unless `isPiped`.
   */
  start(
    name: string,
    command: readonly string[],
    { env = {}, isPiped = false }: { env?: NodeJS.ProcessEnv; isPiped?: boolean } = {},
  ): ChildProcess {
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

  private logFile(name: string): string {
    return path.join(this.state, 'log', name);
  }

  /**
   * Describes the cluster for the report of a failure: the pods, the logs of pods that were restarted or are not ready,
   * and the ends of the logs of all programs that are not in a pod. Never throws.
   */
  async describe(): Promise<string> {
    this.signal = AbortSignal.timeout(describeLimitMs);
    const ask = (...args: string[]): Promise<string> =>
      this.kubectl(`--request-timeout=${answerLimit}`, ...args).catch((error: Error) => error.message);
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

  private readLogs(): string[] {
    const folder = this.logFile('');
    if (!existsSync(folder)) return [];
    return readdirSync(folder).map(
      (name) => `${name}:\n${lastLines(readFileSync(this.logFile(name), 'utf8'), systemLinesShown)}`,
    );
  }

  /** Runs a script. Returns what it prints, without its error output. */
  private async script(name: string, { args = [], env = {}, isAbortable = true }: ScriptOptions = {}): Promise<string> {
    const { code, output, stdout } = await runChild(path.join(this.scripts, name), args, {
      env: { ...this.env, ...env },
      signal: isAbortable ? this.signal : undefined,
    });
    if (code !== 0) throw new Error(`${name} ${args.join(' ')} failed:\n${output.trim()}`);
    return stdout;
  }
}

/**
 * The names of the pods in a list by kubectl that were restarted, failed or are not ready; none if the text is no list.
 */
function troubledPods(list: string): string[] {
  try {
    const { items } = JSON.parse(list) as List<Pod>;
    return items
      .filter(({ status: { phase, containerStatuses = [] } }) => {
        if (phase === 'Succeeded') return false;
        return phase !== 'Running' || containerStatuses.some(({ ready, restartCount }) => !ready || restartCount > 0);
      })
      .map(({ metadata }) => metadata.name);
  } catch {
    // The API server does not answer, which the other texts show.
    return [];
  }
}

export const lastLines = (text: string, count: number): string => text.trim().split('\n').slice(-count).join('\n');
