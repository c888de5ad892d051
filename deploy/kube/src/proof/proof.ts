import type { ServiceName } from '@granary/shared/trust/services';
import { limitMs } from '@granary/testing/speed';
import { setTimeout as delay } from 'node:timers/promises';
import type { Database } from '../backends/postgres';
import type { Cluster } from '../cluster/cluster';
import { expectResources, findResources } from '../cluster/resources';
import { startClients, type App, type ClientOptions } from '../traffic/clients';
import {
  addTo,
  countBetween,
  describeSum,
  makeSum,
  requireSuccess,
  type ResultBeside,
} from '../traffic/request-counts';
import { scaledSeconds } from '../waiting';
import { Gateway } from './gateway';

const writers = 8;
const readyTimeout = scaledSeconds(180);
const installWithinMs = 90_000;
const killEveryMs = 3_000;
/**
 * Clients run for this long before a change begins and after it has ended. Their requests in that time are not counted,
 * but must not fail.
 */
const leadMs = 2_000;
const tailMs = 5_000;
/** The limit of rounds: a change that has met too few requests after so many of them never meets enough. */
const roundsMax = 20;

/** A release that can be installed: the folder or the archive of its chart, and the flags of Helm with its values. */
export interface Release {
  chart: string;
  values: readonly string[];
}

export interface ProofOptions extends Release {
  /** The image of this release. */
  image: string;
  /** The services, each with the services that may call it. */
  callersOf: Readonly<Record<ServiceName, readonly ServiceName[]>>;
  /** The backends of the services; after a failover `primary` is another server. */
  backends: { readonly primary: Database };
}

/** Databases that can be made anew, empty. */
export interface EmptiedBackends {
  empty(): Promise<void>;
}

/** A backup that is kept outside of the cluster. */
export interface KeptBackup {
  /** The image of the tools that restore it. */
  archive: string;
  /** The folder of its files. */
  folder: string;
  /** The ids of the documents that were stored before it. */
  stored: string[];
}

/** The changes that are made beside clients, by title; `round` counts up from 0. */
export type Changes = Readonly<Record<string, (round: number) => Promise<unknown>>>;

export interface BesideOptions {
  /** Whether requests may fail. */
  mayFail?: boolean;
  /** The least number of requests beside each change. */
  requestsMin?: number;
  /** The kinds of clients that are left out. */
  without?: readonly string[];
}

/** The writes and uploads that were acknowledged to clients. */
interface Acknowledged {
  /** The ids of documents. */
  written: string[];
  /** The checksums of blobs, by their ids. */
  uploaded: Record<string, string>;
}

/**
 * Proves the chart of this release in a cluster. Each step throws an error for what failed, or returns what it
 * measured.
 */
export class Proof {
  readonly cluster: Cluster;
  readonly chart: string;
  readonly image: string;
  readonly callersOf: ProofOptions['callersOf'];
  readonly backends: ProofOptions['backends'];
  readonly gateway: Gateway;
  /** The names of the Jobs whose migrations have failed. */
  readonly failedJobs: string[] = [];
  /** The last backup that was made. */
  backup: KeptBackup | undefined;
  private currentValues: readonly string[];
  private currentApp: App | undefined;
  private acknowledged: Acknowledged = { written: [], uploaded: {} };
  private resourcesBefore: string[] = [];
  private upgrades = 0;
  private installs = 0;

  constructor(cluster: Cluster, { chart, values, image, callersOf, backends }: ProofOptions) {
    this.cluster = cluster;
    this.gateway = new Gateway(cluster);
    this.chart = chart;
    this.currentValues = values;
    this.image = image;
    this.callersOf = callersOf;
    this.backends = backends;
  }

  /** Flags of Helm with the values of this release. */
  get values(): readonly string[] {
    return this.currentValues;
  }

  /** The app that clients use; an install makes it. */
  get app(): App {
    if (this.currentApp === undefined) throw new Error('nothing was installed that has an app');
    return this.currentApp;
  }

  /** Installs a release. Returns how long it took until all pods were ready, which has a limit for this release. */
  async install({ chart, values }: Release = this): Promise<string> {
    this.resourcesBefore = await findResources(this.cluster);
    const beganMs = performance.now();
    await this.cluster.helm('install', 'granary', chart, ...values, '--wait', '--timeout', readyTimeout);
    const tookMs = performance.now() - beganMs;
    const limit = secondsOf(limitMs(installWithinMs));
    const took = secondsOf(tookMs);
    if (chart === this.chart && tookMs > limitMs(installWithinMs)) {
      throw new Error(`the install took ${took}, longer than ${limit}`);
    }
    await this.gateway.find();
    this.currentApp = await this.gateway.makeApp('cluster');
    // Clients make queries of the collection that this write makes.
    if (!(await this.writes())) throw new Error('nothing can be written');
    return chart === this.chart ? `installed in ${took} of ${limit}` : `installed in ${took}`;
  }

  /** Runs the test of the chart, in a pod. */
  async smoke(): Promise<void> {
    await this.cluster.helm('test', 'granary', '--timeout', scaledSeconds(60));
  }

  /** Upgrades to this release, which replaces the pods of all components. */
  upgrade(...flags: string[]): Promise<void> {
    this.upgrades += 1;
    const annotation = ['--set-string', `defaults.podAnnotations.revision=${this.upgrades}`];
    return this.change('upgrade', 'granary', this.chart, ...this.values, ...annotation, ...flags);
  }

  /** Returns to the revision that has this number in Helm, which replaces the pods of all components again. */
  rollback(revision: string): Promise<void> {
    return this.change('rollback', 'granary', revision);
  }

  /** Changes what is installed. Helm keeps all revisions, so that `rollback` can return to any of them. */
  private async change(...command: string[]): Promise<void> {
    await this.cluster.helm(...command, '--history-max=0', '--wait', '--timeout', readyTimeout);
  }

  /** The number of the revision that Helm has deployed. */
  async revision(): Promise<string> {
    const releases = await this.cluster.helm('list', '--deployed', '--output=json');
    const [deployed] = JSON.parse(releases) as { revision: string | number }[];
    if (deployed === undefined) throw new Error('nothing is deployed');
    return String(deployed.revision);
  }

  /** Throws unless all components run the image of this release, so that the following steps prove this release. */
  async expectThisRelease(): Promise<void> {
    const line = '{range .items[*]}{.metadata.name}{" "}{.spec.template.spec.containers[*].image}{"\\n"}{end}';
    const selector = 'app.kubernetes.io/instance=granary';
    const images = await this.cluster.kubectl('get', 'deployments', '-l', selector, '-o', `jsonpath=${line}`);
    const lines = images.trim().split('\n').sort();
    const expected = Object.keys(this.callersOf).map((name) => `granary-${name} ${this.image}`);
    if (lines.join() !== expected.sort().join()) throw new Error(`another release is running:\n${images}`);
  }

  async drain(node: string): Promise<void> {
    const flags = ['--ignore-daemonsets', '--delete-emptydir-data', `--timeout=${readyTimeout}`];
    await this.cluster.kubectl('drain', node, ...flags);
    await this.cluster.kubectl('uncordon', node);
    await this.cluster.kubectl('wait', '--for=condition=Available', 'deployment', '--all', `--timeout=${readyTimeout}`);
  }

  /**
   * Ends pods without notice, one after the other: the pod that `victimOf` names for the number of those killed before,
   * or else a random one. Pods with a volume get a second of notice.
   */
  async kills(count: number, victimOf: (killed: number) => string | undefined = () => undefined): Promise<void> {
    for (let killed = 0; killed < count; killed++) {
      const pod = victimOf(killed) ?? (await this.randomPod());
      const owner = await this.cluster.kubectl('get', pod, '--output', 'jsonpath={.metadata.ownerReferences[0].kind}');
      // A pod that is deleted by force may still run beside the next one, and two servers on one volume lose data.
      const flags = owner === 'StatefulSet' ? ['--grace-period=1'] : ['--grace-period=0', '--force'];
      await this.cluster.kubectl('delete', pod, ...flags);
      await delay(killEveryMs);
    }
    await this.cluster.kubectl('wait', '--for=condition=Available', 'deployment', '--all', `--timeout=${readyTimeout}`);
  }

  private async randomPod(): Promise<string> {
    const running = ['--field-selector=status.phase=Running', '--output', 'name'];
    const pods = (await this.cluster.kubectl('get', 'pods', ...running)).trim().split('\n');
    return pods[Math.floor(Math.random() * pods.length)] ?? '';
  }

  /**
   * Does `change` beside clients, see `startClients`. Returns the outcome of their requests; `beside` counts those from
   * the beginning to the end of the change.
   */
  async withClients(options: ClientOptions, change: () => Promise<unknown>): Promise<ResultBeside> {
    const clients = startClients(this.cluster, { url: this.gateway.url, app: this.app, ...options });
    let beganMs: number;
    let endedMs: number;
    try {
      await delay(leadMs);
      beganMs = Date.now();
      await change();
      endedMs = Date.now();
      await delay(tailMs);
    } catch (error) {
      clients.kill();
      throw error;
    }
    const result = await clients.end();
    this.acknowledged.written.push(...result.written);
    Object.assign(this.acknowledged.uploaded, result.uploaded);
    return { ...result, beside: countBetween(result.requestsAt, beganMs, endedMs) };
  }

  /**
   * Does each of `changes` beside clients, and all of them again until `requestsMin` requests were made beside each.
   * Throws if any request failed, unless failures are allowed.
   */
  async beside(changes: Changes, { mayFail = false, requestsMin = 0, without }: BesideOptions = {}): Promise<string> {
    const pairs = Object.entries(changes).map(([title, change]) => ({ sum: makeSum(title), change }));
    const sums = pairs.map(({ sum }) => sum);
    const isEnough = (): boolean => sums.every(({ beside }) => beside >= requestsMin);
    for (let round = 0; round === 0 || !isEnough(); round++) {
      if (round === roundsMax) throw new Error(`too few requests: ${sums.map(describeSum).join('; ')}`);
      for (const { sum, change } of pairs) {
        const result = await this.withClients({ writers, without }, () => change(round));
        if (!mayFail) requireSuccess(result);
        addTo(sum, result);
      }
    }
    return sums.map(describeSum).join('; ');
  }

  /** Throws unless everything that was acknowledged is stored once, and blobs have their bytes. */
  async nothingLost(): Promise<string> {
    const { written, uploaded } = this.acknowledged;
    const counts = [await this.expectStored('traffic', written)];
    counts.push(await this.expectStored('files', Object.keys(uploaded)));
    await this.compareBlobs();
    return counts.join('; ');
  }

  private async expectStored(collection: string, acknowledged: readonly string[]): Promise<string> {
    const stored = await this.stored(collection);
    const distinct = new Set(stored);
    const lost = acknowledged.filter((id) => !distinct.has(id));
    if (lost.length > 0) throw new Error(`${lost.length} of ${collection} are lost: ${lost.slice(0, 5).join(', ')}`);
    const doubled = stored.length - distinct.size;
    if (doubled > 0) throw new Error(`${doubled} of ${collection} are stored twice`);
    return `${collection}: ${acknowledged.length} were acknowledged, ${stored.length} are stored`;
  }

  /** Throws unless each blob whose upload was acknowledged is downloaded with the bytes that were sent. */
  async compareBlobs(): Promise<void> {
    const wrong = await this.gateway.compareBlobs(this.app, this.acknowledged.uploaded);
    if (wrong.length > 0) throw new Error(`${wrong.length} blobs are wrong:\n${wrong.slice(0, 5).join('\n')}`);
  }

  /** The ids of all documents of a collection, by default of the one that clients write to. */
  stored(collection = 'traffic'): Promise<string[]> {
    return this.gateway.storedIn(this.app, collection);
  }

  /** Writes a document. Returns whether it was acknowledged. */
  async writes(): Promise<boolean> {
    const id = `alone-${Date.now()}`;
    const isWritten = await this.gateway.write(this.app, id);
    if (isWritten) this.acknowledged.written.push(id);
    return isWritten;
  }

  /**
   * Uninstalls the chart. Throws unless the namespace has the resources from before the install, and besides them at
   * most volume claims, and the Jobs of failed migrations with their pods, which are kept for their logs.
   */
  async uninstall(): Promise<string> {
    await this.cluster.helm('uninstall', 'granary', '--wait');
    const kept = this.failedJobs.flatMap((name) => [`job.batch/${name}`, `pod/${name}`]);
    const isKept = (name: string): boolean => kept.some((each) => name === each || name.startsWith(`${each}-`));
    await expectResources(this.cluster, this.resourcesBefore, isKept);
    return `${this.resourcesBefore.length} resources are as before the install`;
  }

  /**
   * Installs this release with empty databases and an empty place in the bucket, does `work` and uninstalls it.
   * Afterwards the app and the acknowledged writes are those from before: they are in the backup that is restored
   * later.
   */
  async anew(backends: EmptiedBackends, work?: () => Promise<string>): Promise<string> {
    const { currentApp, acknowledged, currentValues } = this;
    this.acknowledged = { written: [], uploaded: {} };
    this.installs += 1;
    this.currentValues = [...currentValues, '--set', `objectStorage.prefix=anew-${this.installs}/`];
    try {
      await backends.empty();
      const installed = await this.install();
      await this.smoke();
      const measured = await work?.();
      await this.uninstall();
      return measured === undefined ? installed : `${installed}; ${measured}`;
    } finally {
      this.currentApp = currentApp;
      this.acknowledged = acknowledged;
      this.currentValues = currentValues;
    }
  }

  /** Installs, tests, upgrades and uninstalls this release with another Helm. */
  async withHelm(program: string, backends: EmptiedBackends): Promise<string> {
    const usualHelm = this.cluster.helmFile;
    this.cluster.helmFile = program;
    try {
      return await this.anew(backends, () => this.beside({ upgrade: () => this.upgrade() }));
    } finally {
      this.cluster.helmFile = usualHelm;
    }
  }
}

const secondsOf = (ms: number): string => `${(ms / 1_000).toFixed(0)} s`;
