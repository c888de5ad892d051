import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { runChild } from '../child.mjs';

export const namespace = 'granary';
/** Where this machine is seen from the pods of the cluster, see deploy/kube/env.sh. */
export const hostAddress = '10.99.0.1';

/** A real Kubernetes in namespaces of its own on this machine, by the scripts of deploy/kube. Root only. */
export class Cluster {
  /** `home` keeps the programs of Kubernetes, `helm` is the file of Helm. */
  constructor({ root, home, helm, nodes }) {
    this.scripts = path.join(root, 'deploy/kube');
    this.helmFile = helm;
    mkdirSync(home, { recursive: true });
    this.env = { ...process.env, KUBE_HOME: home, KUBE_NODES: String(nodes) };
  }

  /** Compiles Kubernetes if it has not been, and starts it. */
  async up() {
    await this.script('up.sh');
  }

  /** Ends it with everything in it. */
  async down() {
    await this.script('down.sh');
  }

  async load(archive) {
    await this.script('load.sh', archive);
  }

  /** Runs a program in the network of the cluster, and returns what it prints. Throws with that if it fails. */
  async run(...command) {
    return this.script('in.sh', ...command);
  }

  kubectl(...args) {
    return this.run('kubectl', '--namespace', namespace, ...args);
  }

  helm(...args) {
    return this.run(this.helmFile, '--namespace', namespace, ...args);
  }

  /** Starts a program in the network of the cluster that goes on; `user` is a pair of numbers. */
  start(command, { user, env = {}, output = 'ignore' } = {}) {
    const identity = user ? ['setpriv', `--reuid=${user.uid}`, `--regid=${user.gid}`, '--clear-groups'] : [];
    return spawn(path.join(this.scripts, 'in.sh'), [...identity, ...command], {
      ...{ env: { ...this.env, ...env }, cwd: '/', stdio: ['ignore', output, 'ignore'] },
    });
  }

  async script(name, ...args) {
    const { code, output } = await runChild(path.join(this.scripts, name), args, { env: this.env });
    if (code !== 0) throw new Error(`${name} ${args.join(' ')} failed:\n${output.trim()}`);
    return output;
  }
}
