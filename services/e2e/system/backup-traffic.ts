import { createHash, randomBytes, randomInt } from 'node:crypto';
import { eventually } from '@granary/testing/eventually';
import { send, type StoreAnswer, type TestApp } from '../support/granary';

export const bulkDocuments = 40;
const padding = 'x'.repeat(200);

/** What was acknowledged so far. */
export interface Acknowledged {
  /** Ids of documents, with the answers to their writes. */
  writes: Map<string, { key: string; body: object; answer: StoreAnswer }>;
  /** Names of bulks; each has `bulkDocuments` documents. */
  bulks: Set<string>;
  /** SHA-256 by blob id, of those that nobody has asked to delete. */
  blobs: Map<string, string>;
  /** Blobs whose deletion was acknowledged. */
  deleted: Set<string>;
}

/** Writers, uploaders and deleters on one app, until they are stopped. */
export class Traffic {
  private readonly now: Acknowledged = { writes: new Map(), bulks: new Set(), blobs: new Map(), deleted: new Set() };
  private readonly loops: Array<Promise<void>>;
  private isStopped = false;
  private count = 0;

  constructor(
    private readonly url: string,
    private readonly app: TestApp,
  ) {
    const write = () => this.write();
    const upload = () => this.upload();
    const works = [write, write, write, () => this.bulk(), upload, upload, () => this.remove()];
    this.loops = works.map(async (work) => {
      while (!this.isStopped) await work();
    });
    for (const loop of this.loops) loop.catch(() => {});
  }

  acknowledged(): Acknowledged {
    const { writes, bulks, blobs, deleted } = this.now;
    return { writes: new Map(writes), bulks: new Set(bulks), blobs: new Map(blobs), deleted: new Set(deleted) };
  }

  /** Resolves when so many more writes, and a tenth as many uploads, were acknowledged. */
  async more(count: number): Promise<void> {
    const { writes, blobs, deleted } = this.now;
    const uploads = () => blobs.size + deleted.size;
    const [writesGoal, uploadsGoal] = [writes.size + count, uploads() + count / 10];
    await eventually(async () => writes.size >= writesGoal && uploads() >= uploadsGoal && deleted.size > 0, 60_000);
  }

  /** Throws what one of them threw. */
  async stop(): Promise<void> {
    this.isStopped = true;
    await Promise.all(this.loops);
  }

  private async write(): Promise<void> {
    const id = `one-${this.count++}`;
    const body = { root: `${this.app.appId}::documents`, data: [{ id, padding }] };
    const answer = await this.app.call<StoreAnswer>('POST', '/store', body, { 'idempotency-key': id });
    if (answer.status !== 202) throw new Error(`a write: ${answer.status} ${answer.text}`);
    this.now.writes.set(id, { key: id, body, answer: answer.body });
  }

  private async bulk(): Promise<void> {
    const name = `bulk-${this.count++}`;
    const data = Array.from({ length: bulkDocuments }, (_, n) => ({ id: `${name}/${n}`, padding }));
    await this.app.store('bulks', data);
    this.now.bulks.add(name);
  }

  private async upload(): Promise<void> {
    // Every fifth upload has bytes that another blob has too.
    const bytes = this.count++ % 5 === 0 ? Buffer.alloc(20_000, 'same') : randomBytes(randomInt(1, 300_000));
    const answer = await this.app.call<{ blob_id: string }>('POST', this.path(), bytes, {
      'content-type': 'application/octet-stream',
    });
    if (answer.status !== 202) throw new Error(`an upload: ${answer.status} ${answer.text}`);
    this.now.blobs.set(answer.body.blob_id, createHash('sha256').update(bytes).digest('hex'));
  }

  private async remove(): Promise<void> {
    const ids = [...this.now.blobs.keys()];
    // Some are there at any time, so that backups have something to hold.
    if (ids.length < 10) {
      await eventually(async () => this.isStopped || this.now.blobs.size >= 10, 60_000);
      return;
    }
    const id = ids[randomInt(ids.length)]!;
    this.now.blobs.delete(id);
    const answer = await send(this.url, 'DELETE', `${this.path()}/${id}`, { key: this.app.key });
    if (answer.status >= 300) throw new Error(`a deletion: ${answer.status} ${answer.text}`);
    this.now.deleted.add(id);
  }

  private path(): string {
    return `/api/apps/${this.app.appId}/blobs/files`;
  }
}
