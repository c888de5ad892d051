import { choosePorts } from '@granary/local/ports';
import { cacheFolder } from '@granary/stack/tools/cache';
import { prepareChartTools } from '@granary/stack/tools/chart-tools';
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { runChild } from './child';
import { lastLines } from './cluster/cluster';
import { makeDirectory } from './cluster/directory';
import type { Counts } from './counts';
import type { Say } from './say';
import { applyValuesFiles } from './steps/values-files';
import { waitUntil, withinLimit } from './waiting';

const readyWithinMs = 60_000;
const linesShown = 20;

interface ApiServerOptions {
  /** The folder of the checkout. */
  root: string;
  /** The folder that keeps the programs of Kubernetes. */
  home: string;
  /** The folder for the state of this server alone. */
  state: string;
  /** The path of the program Helm. */
  helm: string;
  signal: AbortSignal;
}

/**
 * The API server of Kubernetes with its store and nothing else, on loopback. It judges resources like the API server of
 * a cluster, and needs no root. It ends with this process at the latest.
 */
class ApiServer {
  readonly helmFile: string;
  private readonly scripts: string;
  private readonly state: string;
  private readonly env: NodeJS.ProcessEnv;
  private readonly signal: AbortSignal;
  private child: ChildProcess | undefined;
  private ended: Promise<unknown> | undefined;

  constructor({ root, home, state, helm, signal }: ApiServerOptions) {
    this.signal = signal;
    this.state = state;
    this.scripts = path.join(root, 'deploy/kube');
    this.helmFile = helm;
    this.env = { ...process.env, KUBE_HOME: home, KUBE_STATE: state };
  }

  async start(ports: readonly number[]): Promise<void> {
    mkdirSync(this.state, { recursive: true });
    const script = path.join(this.scripts, 'api.sh');
    await this.run(path.join(this.scripts, 'build.sh'));
    const child = spawn('setpriv', ['--pdeathsig=KILL', script, ...ports.map(String)], {
      env: this.env,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    this.child = child;
    this.ended = new Promise((resolve) => child.once('close', resolve).once('error', resolve));
    await waitUntil('the API server is ready', () => this.isReady(child), readyWithinMs);
  }

  private async isReady(child: ChildProcess): Promise<boolean> {
    if (child.exitCode !== null) {
      const log = readFileSync(path.join(this.state, 'log', 'apiserver.log'), 'utf8');
      throw new Error(`The API server has ended:\n${lastLines(log, linesShown)}`);
    }
    return this.run('kubectl', 'get', '--raw', '/readyz').then(
      () => true,
      () => false,
    );
  }

  /**
   * Runs a program with the programs of Kubernetes in its path, and returns what it prints. Throws with its errors if
   * it fails.
   */
  async run(...command: string[]): Promise<string> {
    const within = '. "$0/env.sh"; PATH=$bin:$PATH exec "$@"';
    const options = { env: this.env, signal: this.signal };
    const { code, output, stdout } = await runChild('bash', ['-c', within, this.scripts, ...command], options);
    if (code !== 0) throw new Error(`${command.join(' ')} failed:\n${output.trim()}`);
    return stdout;
  }

  async stop(): Promise<void> {
    this.child?.kill('SIGKILL');
    await this.ended;
  }
}

/**
 * Proves what can be proved without root: an API server takes every values file of the chart. Returns the counts of
 * steps, as the proof in a cluster does.
 */
export async function proveOnApiServer(
  root: string,
  { say, signal }: { say: Say; signal: AbortSignal },
): Promise<Counts> {
  const definitions = await prepareChartTools(say);
  const directory = await makeDirectory();
  const home = path.join(await cacheFolder(), 'kube');
  const helm = path.join(definitions, 'helm');
  const server = new ApiServer({ root, home, state: path.join(directory, 'api'), helm, signal });
  try {
    say('compiling Kubernetes; the first time that takes minutes');
    await server.start(await choosePorts(3));
    const proof = { cluster: server, chart: path.join(root, 'charts/granary') };
    const files = await withinLimit(signal, () => applyValuesFiles(proof, { root, definitions, directory }));
    say(`values files on an API server alone: passed; ${files}`);
    return { passed: 1, failed: 0 };
  } catch (error) {
    say(`values files on an API server alone: FAILED\n${(error as Error).message}`);
    return { passed: 0, failed: 1 };
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}
