import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { operatorKey } from '../backends/backends';
import type { Cluster } from '../cluster/cluster';
import type { App } from '../traffic/clients';
import { waitUntil } from '../waiting';

/** The folder of the programs that are clients. */
const programs = path.join(__dirname, '../traffic');
const reachableWithinMs = 30_000;

/** The installed gateway, as a client in the network of the cluster sees it. */
export class Gateway {
  private readonly cluster: Cluster;
  private currentUrl = '';

  constructor(cluster: Cluster) {
    this.cluster = cluster;
  }

  /** The URL of the gateway; empty before `find`. */
  get url(): string {
    return this.currentUrl;
  }

  async find(): Promise<void> {
    const address = await this.cluster.kubectl('get', 'service', 'granary-gateway', '-o', 'jsonpath={.spec.clusterIP}');
    this.currentUrl = `http://${address}`;
    // A copy that is ready gets its connections a moment later.
    await waitUntil('the gateway answers', () => this.isReachable(), reachableWithinMs);
  }

  private async isReachable(): Promise<boolean> {
    return this.cluster.run('curl', '--silent', '--fail', '--max-time', '5', `${this.url}/readyz`).then(
      () => true,
      () => false,
    );
  }

  /** Makes an app as the operator does. */
  async makeApp(name: string): Promise<App> {
    const made = await this.post('/api/applications', { 'x-operator-key': operatorKey }, { name });
    const { app_id: id, app_key: key } = made as { app_id: string; app_key: string };
    return { id, key };
  }

  /** Writes a document with this id. Returns whether that was acknowledged. */
  async write(app: App, id: string): Promise<boolean> {
    const body = { root: `${app.id}::traffic`, data: [{ id }] };
    return this.post('/store', { 'x-app-key': app.key }, body).then(
      () => true,
      () => false,
    );
  }

  /** The ids of all documents of a collection. A document that is stored twice has its id in it twice. */
  async storedIn(app: App, collection: string): Promise<string[]> {
    return JSON.parse(await this.runProgram('stored.js', app, collection)) as string[];
  }

  /** Downloads blobs, whose checksums are given by their ids, and returns what is wrong with them. */
  async compareBlobs(app: App, uploaded: Readonly<Record<string, string>>): Promise<string[]> {
    const file = path.join(this.cluster.state, 'uploaded.json');
    writeFileSync(file, JSON.stringify(uploaded));
    return JSON.parse(await this.runProgram('stored-blobs.js', app, file)) as string[];
  }

  private runProgram(name: string, { key, id }: App, ...args: string[]): Promise<string> {
    return this.cluster.run(process.execPath, path.join(programs, name), this.url, key, id, ...args);
  }

  /** Returns the answer to `body`. Throws unless it is a success. */
  private async post(route: string, headers: Record<string, string>, body: unknown): Promise<unknown> {
    const sent = { ...headers, 'content-type': 'application/json' };
    const flags = Object.entries(sent).flatMap(([name, value]) => ['-H', `${name}: ${value}`]);
    const limits = ['-sS', '--fail-with-body', '--max-time', '15'];
    const content = ['-X', 'POST', this.url + route, ...flags, '-d', JSON.stringify(body)];
    return JSON.parse(await this.cluster.run('curl', ...limits, ...content)) as unknown;
  }
}
