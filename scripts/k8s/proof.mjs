import { setTimeout as delay } from 'node:timers/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { operatorKey } from './backends.mjs';

const trafficFile = path.join(path.dirname(fileURLToPath(import.meta.url)), 'traffic.mjs');
const connections = 16;
/** Requests beside each change of the release, at least. */
const requestsMin = 5_000;
const readyTimeout = '180s';
const killEveryMs = 3_000;

/** The chart in a cluster, and what is proved of it. Each step throws an error for what failed. */
export class Proof {
  constructor(cluster, { chart, values, callersOf, sql, say }) {
    Object.assign(this, { cluster, chart, values, callersOf, sql, say });
    this.revision = 0;
    this.written = 0;
  }

  async install() {
    const beganMs = performance.now();
    await this.cluster.helm('install', 'granary', this.chart, ...this.values, '--wait', '--timeout', readyTimeout);
    this.say(`installed in ${((performance.now() - beganMs) / 1000).toFixed(0)} s`);
    await this.cluster.helm('test', 'granary', '--timeout', '60s');
    const address = await this.cluster.kubectl('get', 'service', 'granary-gateway', '-o', 'jsonpath={.spec.clusterIP}');
    this.url = `http://${address}`;
    const app = await this.request('POST', '/api/applications', { 'x-operator-key': operatorKey }, { name: 'cluster' });
    this.app = { id: app.app_id, key: app.app_key };
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
    this.say('services reach each other exactly where they call each other');
  }

  /** Changes the pods of all components. */
  upgrade(...flags) {
    this.revision += 1;
    const annotation = ['--set-string', `defaults.podAnnotations.revision=${this.revision}`];
    const wait = ['--wait', '--timeout', readyTimeout];
    return this.cluster.helm('upgrade', 'granary', this.chart, ...this.values, ...annotation, ...flags, ...wait);
  }

  /** To the release that was installed first, which changes the pods of all components again. */
  async rollback() {
    await this.cluster.helm('rollback', 'granary', '1', '--wait', '--timeout', readyTimeout);
  }

  /** An upgrade whose migration fails, fails, and changes no pod. */
  async brokenMigration() {
    const pods = () => this.cluster.kubectl('get', 'pods', '-l', 'app.kubernetes.io/component=tasks', '-o', 'name');
    const before = await pods();
    await this.sql('alter role granary_tasks_owner nologin');
    try {
      await this.upgrade('--set', 'migrations.backoffLimit=0');
    } catch (error) {
      if (!/pre-upgrade hooks failed/.test(error.message)) throw error;
      if ((await pods()) !== before) throw new Error('a failed upgrade changed pods', { cause: error });
      return;
    } finally {
      await this.sql('alter role granary_tasks_owner login');
    }
    throw new Error('an upgrade with a broken migration succeeded');
  }

  async drain(node) {
    const flags = ['--ignore-daemonsets', '--delete-emptydir-data', `--timeout=${readyTimeout}`];
    await this.cluster.kubectl('drain', node, ...flags);
    await this.cluster.kubectl('uncordon', node);
    await this.cluster.kubectl('wait', '--for=condition=Available', 'deployment', '--all', `--timeout=${readyTimeout}`);
  }

  /** Ends random pods without notice. */
  async kills(count) {
    for (let killed = 0; killed < count; killed++) {
      const pods = (await this.cluster.kubectl('get', 'pods', '--field-selector=status.phase=Running', '-o', 'name'))
        .trim()
        .split('\n');
      await this.cluster.kubectl(
        'delete',
        pods[Math.floor(Math.random() * pods.length)],
        '--grace-period=0',
        '--force',
      );
      await delay(killEveryMs);
    }
    await this.cluster.kubectl('wait', '--for=condition=Available', 'deployment', '--all', `--timeout=${readyTimeout}`);
  }

  /** Does `change` beside clients. Throws if one of at least 5,000 requests failed, unless failures are allowed. */
  async beside(title, change, { mayFail = false } = {}) {
    const args = [process.execPath, trafficFile, this.url, this.app.key, this.app.id, String(connections)];
    const child = this.cluster.start(args, { output: 'pipe' });
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text) => (output += text));
    const ended = new Promise((resolve) => child.once('exit', resolve));
    try {
      await delay(2_000);
      await change();
      await delay(5_000);
    } finally {
      child.kill('SIGTERM');
      await ended;
    }
    const { requests, written, failed, failures } = JSON.parse(output);
    this.written += written;
    this.say(`${title}: ${failed} of ${requests} requests failed`);
    if (requests < requestsMin) throw new Error(`only ${requests} requests were sent`);
    if (failed > 0 && !mayFail) throw new Error(failures.join('\n'));
  }

  /** Everything that was acknowledged is stored. */
  async nothingLost() {
    const route = `/api/apps/${this.app.id}/collections/traffic/stats`;
    const { document_count: stored } = await this.request('GET', route, { 'x-app-key': this.app.key });
    if (stored < this.written)
      throw new Error(`${this.written} writes were acknowledged, ${stored} documents are stored`);
    this.say(`${this.written} writes were acknowledged, ${stored} documents are stored`);
  }

  /** Nothing of the release is left but the Secrets that it was given, and the failed Job, which is kept for its log. */
  async uninstall() {
    await this.cluster.helm('uninstall', 'granary', '--wait');
    const kinds =
      'deployment,service,configmap,serviceaccount,networkpolicy,poddisruptionbudget,job,cronjob,role,rolebinding';
    const left = await this.cluster.kubectl('get', kinds, '-l', 'app.kubernetes.io/instance=granary', '-o', 'name');
    const unexpected = left
      .trim()
      .split('\n')
      .filter((name) => /\//.test(name) && !name.startsWith('job.batch/granary-migrate'));
    if (unexpected.length > 0) throw new Error(`left after uninstall: ${unexpected.join(', ')}`);
  }

  async request(method, route, headers, body) {
    const flags = Object.entries(headers).flatMap(([name, value]) => ['-H', `${name}: ${value}`]);
    const content = body ? ['-H', 'content-type: application/json', '-d', JSON.stringify(body)] : [];
    const output = await this.cluster.run(
      'curl',
      '-sS',
      '--fail-with-body',
      '-X',
      method,
      this.url + route,
      ...flags,
      ...content,
    );
    return JSON.parse(output);
  }
}
