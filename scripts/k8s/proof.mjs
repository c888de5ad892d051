import { setTimeout as delay } from 'node:timers/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { operatorKey } from './backends.mjs';
import { startClients } from './clients.mjs';
import { eventually, scaledSeconds } from './eventually.mjs';

const storedFile = path.join(path.dirname(fileURLToPath(import.meta.url)), 'stored.mjs');
const connections = 8;
const readyTimeout = scaledSeconds(180);
const reachableWithinMs = 30_000;
const killEveryMs = 3_000;

/** Throws if one of the requests of clients failed; returns how many there were. */
export function requireSuccess({ requests, failed, failures }) {
  if (failed > 0) throw new Error(`${failed} of ${requests} requests failed:\n${failures.join('\n')}`);
  return `${requests} requests, none failed`;
}

/**
 * The chart of this release in a cluster, and what is proved of it; `releaseBefore` is another `{chart, values}`. Each step
 * throws an error for what failed, or returns what it measured.
 */
export class Proof {
  /** `requestsMin` are made beside each change of the release, at least. */
  constructor(cluster, { chart, values, releaseBefore, callersOf, backends, requestsMin }) {
    Object.assign(this, { cluster, chart, values, releaseBefore, callersOf, backends, requestsMin });
    this.revision = 0;
    /** The ids of all documents whose writes were acknowledged. */
    this.written = [];
  }

  async install({ chart, values } = this) {
    await this.cluster.helm('install', 'granary', chart, ...values, '--wait', '--timeout', readyTimeout);
    await this.findGateway();
    const app = await this.request('POST', '/api/applications', { 'x-operator-key': operatorKey }, { name: 'cluster' });
    this.app = { id: app.app_id, key: app.app_key };
  }

  async findGateway() {
    const address = await this.cluster.kubectl('get', 'service', 'granary-gateway', '-o', 'jsonpath={.spec.clusterIP}');
    this.url = `http://${address}`;
    // A copy that is ready gets its connections a moment later.
    await eventually('the gateway answers', () => this.isReachable(), reachableWithinMs);
  }

  async isReachable() {
    return this.cluster.run('curl', '--silent', '--fail', '--max-time', '5', `${this.url}/readyz`).then(
      () => true,
      () => false,
    );
  }

  /** The test of the chart, which runs in a pod. */
  async smoke() {
    await this.cluster.helm('test', 'granary', '--timeout', scaledSeconds(60));
  }

  /** Every pair of services connects exactly if `callersOf` says so. */
  async policies() {
    const names = Object.keys(this.callersOf);
    const callees = names.filter((name) => name !== 'gateway');
    for (const caller of names) {
      const program = `const net = require('node:net');
        const open = (host) => new Promise((done) => { const socket = net.connect({ host, port: 5000, timeout: 3000 });
          const end = (found) => { socket.destroy(); done(found); };
          socket.on('connect', () => end(true)).on('timeout', () => end(false)).on('error', () => end(false)); });
        Promise.all(${JSON.stringify(callees)}.map((name) => open('granary-' + name))).then((all) => console.log(JSON.stringify(all)));`;
      const output = await this.cluster.kubectl(
        'exec',
        `deploy/granary-${caller}`,
        '--',
        '/usr/bin/node',
        '-e',
        program,
      );
      const connected = JSON.parse(output.slice(output.indexOf('[')));
      callees.forEach((callee, at) => {
        // A pod may always reach itself.
        if (callee === caller) return;
        const isAllowed = this.callersOf[callee].includes(caller);
        if (connected[at] !== isAllowed) {
          throw new Error(
            `${caller} ${connected[at] ? 'reaches' : 'does not reach'} ${callee}: the contrary is expected`,
          );
        }
      });
    }
  }

  /** To this release. Changes the pods of all components. */
  upgrade(...flags) {
    this.revision += 1;
    const annotation = ['--set-string', `defaults.podAnnotations.revision=${this.revision}`];
    const wait = ['--wait', '--timeout', readyTimeout];
    return this.cluster.helm('upgrade', 'granary', this.chart, ...this.values, ...annotation, ...flags, ...wait);
  }

  /** To what was installed first, which changes the pods of all components again. */
  async rollback() {
    await this.cluster.helm('rollback', 'granary', '1', '--wait', '--timeout', readyTimeout);
  }

  /** An upgrade whose migration fails, fails, changes no pod, and leaves its log. */
  async brokenMigration() {
    const pods = () => this.cluster.kubectl('get', 'pods', '-l', 'app.kubernetes.io/component=tasks', '-o', 'name');
    const before = await pods();
    await this.backends.primary.sql('alter role granary_tasks_owner nologin');
    try {
      await this.upgrade('--set', 'migrations.backoffLimit=0');
    } catch (error) {
      if (!/pre-upgrade hooks failed/.test(error.message)) throw error;
      if ((await pods()) !== before) throw new Error('a failed upgrade changed pods', { cause: error });
      const log = await this.cluster.kubectl(
        'logs',
        '--all-containers',
        '--tail=100',
        '--selector',
        'batch.kubernetes.io/job-name',
      );
      if (!/not permitted to log in/.test(log)) {
        throw new Error(`the log of the failed migration is gone:\n${log}`, { cause: error });
      }
      return;
    } finally {
      await this.backends.primary.sql('alter role granary_tasks_owner login');
    }
    throw new Error('an upgrade with a broken migration succeeded');
  }

  async drain(node) {
    const flags = ['--ignore-daemonsets', '--delete-emptydir-data', `--timeout=${readyTimeout}`];
    await this.cluster.kubectl('drain', node, ...flags);
    await this.cluster.kubectl('uncordon', node);
    await this.cluster.kubectl('wait', '--for=condition=Available', 'deployment', '--all', `--timeout=${readyTimeout}`);
  }

  /** Ends pods without notice: the `at`-th is `victim(at)`, or a random one. Those with a volume get a second of notice. */
  async kills(count, victim = () => undefined) {
    for (let killed = 0; killed < count; killed++) {
      const pod = victim(killed) ?? (await this.randomPod());
      const owner = await this.cluster.kubectl('get', pod, '--output', 'jsonpath={.metadata.ownerReferences[0].kind}');
      // A pod that is deleted by force may still run beside the next one, and two servers on one volume lose data.
      const flags = owner === 'StatefulSet' ? ['--grace-period=1'] : ['--grace-period=0', '--force'];
      await this.cluster.kubectl('delete', pod, ...flags);
      await delay(killEveryMs);
    }
    await this.cluster.kubectl('wait', '--for=condition=Available', 'deployment', '--all', `--timeout=${readyTimeout}`);
  }

  async randomPod() {
    const running = ['--field-selector=status.phase=Running', '--output', 'name'];
    const pods = (await this.cluster.kubectl('get', 'pods', ...running)).trim().split('\n');
    return pods[Math.floor(Math.random() * pods.length)];
  }

  /** Does `change` beside clients, see `startClients`, and returns what became of their requests. */
  async withClients(options, change) {
    const clients = startClients(this.cluster, { url: this.url, app: this.app, ...options });
    try {
      await change();
    } catch (error) {
      clients.kill();
      throw error;
    }
    const result = await clients.end();
    this.written.push(...result.written);
    return result;
  }

  /** Does `change` beside clients. Throws if one of their requests failed, unless failures are allowed. */
  async beside(change, { mayFail = false } = {}) {
    const result = await this.withClients({ connections, requestsMin: this.requestsMin }, async () => {
      await delay(2_000);
      await change();
      await delay(5_000);
    });
    return mayFail ? `${result.failed} of ${result.requests} requests failed` : requireSuccess(result);
  }

  /** Everything that was acknowledged is stored, once. */
  async nothingLost() {
    const stored = await this.stored();
    const distinct = new Set(stored);
    const lost = this.written.filter((id) => !distinct.has(id));
    if (lost.length > 0) throw new Error(`${lost.length} acknowledged writes are lost: ${lost.slice(0, 5).join(', ')}`);
    if (distinct.size < stored.length) throw new Error(`${stored.length - distinct.size} documents are stored twice`);
    return `${this.written.length} writes were acknowledged, ${stored.length} documents are stored`;
  }

  /** The ids of all documents that clients have stored. */
  async stored() {
    return JSON.parse(await this.cluster.run(process.execPath, storedFile, this.url, this.app.key, this.app.id));
  }

  /** Whether a document can be written. */
  async writes() {
    const id = `alone-${Date.now()}`;
    const body = { root: `${this.app.id}::traffic`, data: [{ id }] };
    const written = await this.request('POST', '/store', { 'x-app-key': this.app.key }, body).catch(() => undefined);
    if (written) this.written.push(id);
    return written !== undefined;
  }

  /** Nothing of the release is left but the Secrets that it was given, and the failed Job, which is kept for its log. */
  async uninstall() {
    await this.cluster.helm('uninstall', 'granary', '--wait');
    const kinds =
      'deployment,service,configmap,serviceaccount,networkpolicy,poddisruptionbudget,horizontalpodautoscaler,job,cronjob,role,rolebinding';
    const left = await this.cluster.kubectl('get', kinds, '-l', 'app.kubernetes.io/instance=granary', '-o', 'name');
    const unexpected = left
      .trim()
      .split('\n')
      .filter((name) => /\//.test(name) && !name.startsWith('job.batch/granary-migrate'));
    if (unexpected.length > 0) throw new Error(`left after uninstall: ${unexpected.join(', ')}`);
  }

  /** Installs, tests, upgrades and uninstalls a release by another Helm. */
  async withHelm(program) {
    const own = this.cluster.helmFile;
    // What was proved before concerns another app, which a backup has.
    const { app, written } = this;
    this.written = [];
    this.cluster.helmFile = program;
    try {
      await this.install();
      await this.smoke();
      const found = await this.beside(() => this.upgrade());
      await this.uninstall();
      return found;
    } finally {
      this.cluster.helmFile = own;
      Object.assign(this, { app, written });
    }
  }

  async request(method, route, headers, body) {
    const flags = Object.entries(headers).flatMap(([name, value]) => ['-H', `${name}: ${value}`]);
    const content = body ? ['-H', 'content-type: application/json', '-d', JSON.stringify(body)] : [];
    const output = await this.cluster.run(
      'curl',
      '-sS',
      '--fail-with-body',
      '--max-time',
      '15',
      '-X',
      method,
      this.url + route,
      ...flags,
      ...content,
    );
    return JSON.parse(output);
  }
}
