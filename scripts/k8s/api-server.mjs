import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { runChild } from '../child.mjs';
import { lastLines } from './cluster.mjs';
import { eventually } from './eventually.mjs';
import { withinLimit } from './limit.mjs';
import { makeDirectory } from './directory.mjs';
import { applyValuesFiles } from './values-files.mjs';

const readyWithinMs = 60_000;
const linesShown = 20;

/**
 * The API server of Kubernetes with its store and nothing else, on loopback. It judges resources as that of a cluster
 * does, and needs no root. It ends with this process at the latest.
 */
export class ApiServer {
  /** `home` keeps the programs of Kubernetes, `state` is a folder of its own, `helm` the file of Helm. */
  constructor({ root, home, state, helm, signal }) {
    Object.assign(this, { signal, state });
    this.scripts = path.join(root, 'deploy/kube');
    this.helmFile = helm;
    this.env = { ...process.env, KUBE_HOME: home, KUBE_STATE: state };
  }

  async start(ports) {
    mkdirSync(this.state, { recursive: true });
    const script = path.join(this.scripts, 'api.sh');
    await this.run(path.join(this.scripts, 'build.sh'));
    this.child = spawn('setpriv', ['--pdeathsig=KILL', script, ...ports.map(String)], {
      env: this.env,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    this.ended = new Promise((resolve) => this.child.once('close', resolve).once('error', resolve));
    await eventually('the API server is ready', () => this.isReady(), readyWithinMs);
  }

  async isReady() {
    if (this.child.exitCode !== null) {
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
  async run(...command) {
    const within = '. "$0/env.sh"; PATH=$bin:$PATH exec "$@"';
    const options = { env: this.env, signal: this.signal };
    const { code, output, stdout } = await runChild('bash', ['-c', within, this.scripts, ...command], options);
    if (code !== 0) throw new Error(`${command.join(' ')} failed:\n${output.trim()}`);
    return stdout;
  }

  async stop() {
    this.child?.kill('SIGKILL');
    await this.ended;
  }
}

/**
 * What is proved without root: that an API server takes every values file of the chart. Returns how many steps `passed`
 * and `failed`, as the proof in a cluster does.
 */
export async function proveOnApiServer(root, { say, signal }) {
  const { cacheFolder } = await import('@granary/stack/tools/cache');
  const { prepareChartTools } = await import('@granary/stack/tools/chart-tools');
  const { choosePorts } = await import('@granary/local/ports');
  const definitions = await prepareChartTools(say);
  const directory = await makeDirectory();
  const home = path.join(await cacheFolder(), 'kube');
  const helm = path.join(definitions, 'helm');
  const server = new ApiServer({ root, home, state: path.join(directory, 'api'), helm, signal });
  try {
    say('compiling Kubernetes; the first time that takes minutes');
    await server.start(await choosePorts(3));
    const proof = { cluster: server, chart: path.join(root, 'charts/granary') };
    const found = await withinLimit(signal, () => applyValuesFiles(proof, { definitions, directory }));
    say(`values files on an API server alone: passed; ${found}`);
    return { passed: 1, failed: 0 };
  } catch (error) {
    say(`values files on an API server alone: FAILED\n${error.message}`);
    return { passed: 0, failed: 1 };
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}
