import { limitMs } from '@granary/testing/speed';
import { writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { operatorKey } from './backends.mjs';
import { startClients } from './clients.mjs';
import { eventually, scaledSeconds } from './eventually.mjs';
import { addTo, countBetween, describeSum, makeSum, requireSuccess } from './request-counts.mjs';
import { expectResources, findResources } from './resources.mjs';

const scripts = path.dirname(fileURLToPath(import.meta.url));
const writers = 8;
const readyTimeout = scaledSeconds(180);
const installWithinMs = 90_000;
const reachableWithinMs = 30_000;
const killEveryMs = 3_000;
/**
 * Clients run for so long before a change begins and after it has ended. What they do then is not counted, but may not
 * fail.
 */
const leadMs = 2_000;
const tailMs = 5_000;
/** A change that is done so often beside too few requests never meets enough of them. */
const roundsMax = 20;

/**
 * The chart of this release in a cluster, and what is proved of it; `releaseBefore` is another `{chart, values}`. Each
 * step throws an error for what failed, or returns what it measured.
 */
export class Proof {
  /** `image` is that of this release. `requestsMin` are made beside each change that is counted, at least. */
  constructor(cluster, { chart, values, image, releaseBefore, callersOf, backends, requestsMin }) {
    Object.assign(this, { cluster, chart, values, image, releaseBefore, callersOf, backends, requestsMin });
    this.upgrades = 0;
    this.installs = 0;
    /** The names of the Jobs whose migrations have failed. */
    this.failedJobs = [];
    this.forget();
  }

  /** Forgets what was acknowledged: the ids of documents, and of blobs with their checksums. */
  forget() {
    Object.assign(this, { written: [], uploaded: {} });
  }

  /** Returns how long it took until all pods were ready, which has a limit for this release. */
  async install({ chart, values } = this) {
    this.resourcesBefore = await findResources(this.cluster);
    const beganMs = performance.now();
    await this.cluster.helm('install', 'granary', chart, ...values, '--wait', '--timeout', readyTimeout);
    const tookMs = performance.now() - beganMs;
    const [took, limit] = [tookMs, limitMs(installWithinMs)].map((ms) => `${(ms / 1_000).toFixed(0)} s`);
    if (chart === this.chart && tookMs > limitMs(installWithinMs)) {
      throw new Error(`the install took ${took}, longer than ${limit}`);
    }
    await this.findGateway();
    const app = await this.request('POST', '/api/applications', { 'x-operator-key': operatorKey }, { name: 'cluster' });
    this.app = { id: app.app_id, key: app.app_key };
    // Clients make queries of the collection that this write makes.
    if (!(await this.writes())) throw new Error('nothing can be written');
    return chart === this.chart ? `installed in ${took} of ${limit}` : `installed in ${took}`;
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

  /** To this release. Changes the pods of all components. */
  upgrade(...flags) {
    this.upgrades += 1;
    const annotation = ['--set-string', `defaults.podAnnotations.revision=${this.upgrades}`];
    return this.change('upgrade', 'granary', this.chart, ...this.values, ...annotation, ...flags);
  }

  /** To the revision that Helm has by this number. Changes the pods of all components again. */
  rollback(revision) {
    return this.change('rollback', 'granary', revision);
  }

  /** Helm keeps all revisions, so that any of them can be returned to. */
  async change(...command) {
    await this.cluster.helm(...command, '--history-max=0', '--wait', '--timeout', readyTimeout);
  }

  /** The number that Helm has given to what is installed. */
  async revision() {
    const [{ revision }] = JSON.parse(await this.cluster.helm('list', '--deployed', '--output=json'));
    return String(revision);
  }

  /** Throws unless all components run the image of this release, so that what follows proves that one. */
  async expectThisRelease() {
    const line = '{range .items[*]}{.metadata.name}{" "}{.spec.template.spec.containers[*].image}{"\\n"}{end}';
    const selector = 'app.kubernetes.io/instance=granary';
    const found = await this.cluster.kubectl('get', 'deployments', '-l', selector, '-o', `jsonpath=${line}`);
    const lines = found.trim().split('\n').sort();
    const wanted = Object.keys(this.callersOf).map((name) => `granary-${name} ${this.image}`);
    if (lines.join() !== wanted.sort().join()) throw new Error(`another release is running:\n${found}`);
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
      await this.findFailedJob();
      return;
    } finally {
      await this.backends.primary.sql('alter role granary_tasks_owner login');
    }
    throw new Error('an upgrade with a broken migration succeeded');
  }

  /** The Job of a migration that has failed for want of its role is kept, for its log. */
  async findFailedJob() {
    const { items } = JSON.parse(await this.cluster.kubectl('get', 'jobs', '--output=json'));
    const failed = items.filter(({ status }) =>
      status.conditions?.some(({ type, reason }) => type === 'Failed' && reason === 'BackoffLimitExceeded'),
    );
    const names = failed.map(({ metadata }) => metadata.name).filter((name) => !this.failedJobs.includes(name));
    if (names.length !== 1 || !names[0].startsWith('granary-migrate-')) {
      throw new Error(`one failed migration is expected, not ${names.join(', ') || 'none'}`);
    }
    const flags = ['--all-containers', '--tail=100', '--selector', `batch.kubernetes.io/job-name=${names[0]}`];
    const log = await this.cluster.kubectl('logs', ...flags);
    if (!/not permitted to log in/.test(log)) throw new Error(`the log of the failed migration is gone:\n${log}`);
    this.failedJobs.push(names[0]);
  }

  async drain(node) {
    const flags = ['--ignore-daemonsets', '--delete-emptydir-data', `--timeout=${readyTimeout}`];
    await this.cluster.kubectl('drain', node, ...flags);
    await this.cluster.kubectl('uncordon', node);
    await this.cluster.kubectl('wait', '--for=condition=Available', 'deployment', '--all', `--timeout=${readyTimeout}`);
  }

  /**
   * Ends pods without notice: the `at`-th is `victim(at)`, or a random one. Those with a volume get a second of notice.
   */
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

  /**
   * Does `change` beside clients, see `startClients`, and returns what became of their requests, and how many they made
   * `beside` it, from its begin to its end.
   */
  async withClients(options, change) {
    const clients = startClients(this.cluster, { url: this.url, app: this.app, ...options });
    const times = [];
    try {
      await delay(leadMs);
      times.push(Date.now());
      await change();
      times.push(Date.now());
      await delay(tailMs);
    } catch (error) {
      clients.kill();
      throw error;
    }
    const result = await clients.end();
    this.written.push(...result.written);
    Object.assign(this.uploaded, result.uploaded);
    return { ...result, beside: countBetween(result.requestsAt, ...times) };
  }

  /**
   * Does each of `changes`, as `{title: (round) => Promise}`, beside clients, and all of them again until `requestsMin`
   * requests were made beside each. Throws if one of all requests failed, unless failures are allowed.
   */
  async beside(changes, { mayFail = false, requestsMin = 0, without } = {}) {
    const sums = Object.keys(changes).map(makeSum);
    const isEnough = () => sums.every(({ beside }) => beside >= requestsMin);
    for (let round = 0; round === 0 || !isEnough(); round++) {
      if (round === roundsMax) throw new Error(`too few requests: ${sums.map(describeSum).join('; ')}`);
      for (const sum of sums) {
        const result = await this.withClients({ writers, without }, () => changes[sum.title](round));
        if (!mayFail) requireSuccess(result);
        addTo(sum, result);
      }
    }
    return sums.map(describeSum).join('; ');
  }

  /** Everything that was acknowledged is stored, once, and blobs have their bytes. */
  async nothingLost() {
    const counts = [await this.expectStored('traffic', this.written)];
    counts.push(await this.expectStored('files', Object.keys(this.uploaded)));
    await this.compareBlobs();
    return counts.join('; ');
  }

  async expectStored(collection, acknowledged) {
    const stored = await this.stored(collection);
    const distinct = new Set(stored);
    const lost = acknowledged.filter((id) => !distinct.has(id));
    if (lost.length > 0) throw new Error(`${lost.length} of ${collection} are lost: ${lost.slice(0, 5).join(', ')}`);
    const doubled = stored.length - distinct.size;
    if (doubled > 0) throw new Error(`${doubled} of ${collection} are stored twice`);
    return `${collection}: ${acknowledged.length} were acknowledged, ${stored.length} are stored`;
  }

  /** Each blob whose upload was acknowledged is downloaded with the bytes that were sent. */
  async compareBlobs() {
    const file = path.join(this.cluster.state, 'uploaded.json');
    writeFileSync(file, JSON.stringify(this.uploaded));
    const wrong = JSON.parse(await this.runScript('stored-blobs.mjs', file));
    if (wrong.length > 0) throw new Error(`${wrong.length} blobs are wrong:\n${wrong.slice(0, 5).join('\n')}`);
  }

  /** The ids of all documents of a collection, by default of those that clients have written. */
  async stored(collection = 'traffic') {
    return JSON.parse(await this.runScript('stored.mjs', collection));
  }

  /** Runs a script of this folder as a client of the gateway. */
  runScript(name, ...args) {
    return this.cluster.run(process.execPath, path.join(scripts, name), this.url, this.app.key, this.app.id, ...args);
  }

  /** Whether a document can be written. */
  async writes() {
    const id = `alone-${Date.now()}`;
    const body = { root: `${this.app.id}::traffic`, data: [{ id }] };
    const written = await this.request('POST', '/store', { 'x-app-key': this.app.key }, body).catch(() => undefined);
    if (written) this.written.push(id);
    return written !== undefined;
  }

  /**
   * Of all resources in the namespace those are left that were there before the install, volumes, and the Jobs whose
   * migrations have failed with their pods, which are kept for their logs.
   */
  async uninstall() {
    await this.cluster.helm('uninstall', 'granary', '--wait');
    const kept = this.failedJobs.flatMap((name) => [`job.batch/${name}`, `pod/${name}`]);
    const isKept = (name) => kept.some((each) => name === each || name.startsWith(`${each}-`));
    await expectResources(this.cluster, this.resourcesBefore, isKept);
    return `${this.resourcesBefore.length} resources are as before the install`;
  }

  /**
   * Installs this release with empty databases and an empty place in the bucket, does `work` and uninstalls it. What
   * was proved before concerns what a backup has.
   */
  async anew(work) {
    const { app, written, uploaded, values } = this;
    this.forget();
    this.installs += 1;
    this.values = [...values, '--set', `objectStorage.prefix=anew-${this.installs}/`];
    try {
      await this.backends.empty();
      const installed = await this.install();
      await this.smoke();
      const found = await work?.();
      await this.uninstall();
      return found ? `${installed}; ${found}` : installed;
    } finally {
      Object.assign(this, { app, written, uploaded, values });
    }
  }

  /** Installs, tests, upgrades and uninstalls this release by another Helm. */
  async withHelm(program) {
    const own = this.cluster.helmFile;
    this.cluster.helmFile = program;
    try {
      return await this.anew(() => this.beside({ upgrade: () => this.upgrade() }));
    } finally {
      this.cluster.helmFile = own;
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
