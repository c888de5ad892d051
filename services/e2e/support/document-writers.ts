import { setTimeout as delay } from 'node:timers/promises';
import type { Values } from '../../data/test/support/query-values';
import type { CommitLog, LoggedVersion } from './commit-log';
import { send, type Answer, type StoreAnswer, type TestApp } from './granary';

const connections = 24;
/** Documents a second: they are written as fast as writes are answered, up to this rate. */
const targetRate = 1_000;
const bulkMax = 30;
const batchMax = 6;
/** Documents that get far more versions than the others. */
const oftenWritten = 20;
/** One document in so many is larger than what a connection buffers. */
const largeEvery = 800;
const largeBytes = 100_000;

const kinds = ['store', 'put', 'patch', 'delete', 'restore', 'batch', 'erase'] as const;
type Kind = (typeof kinds)[number];
/** How often each kind is drawn. */
const shares: Record<Kind, number> = { store: 40, put: 20, patch: 10, delete: 8, restore: 5, batch: 15, erase: 2 };
const drawn = kinds.flatMap((kind) => Array<Kind>(shares[kind]).fill(kind));

interface BatchResult {
  status: number;
  result?: { id: string; version: number; celestia_height: number };
}

/** A version as the answer to its writer has it. */
type Acknowledged = Pick<LoggedVersion, 'id'> & Partial<LoggedVersion>;

/** Clients that write the documents of one collection in every way that there is, over many connections. */
export class DocumentWriters {
  /** Ids whose erasure has begun, and those whose erasure was answered. None of them is used again. */
  readonly erased = new Set<string>();
  readonly gone = new Set<string>();
  /** Versions that were acknowledged, and the greatest height that an answer has named. */
  documents = 0;
  height = 0;
  private acknowledged: Acknowledged[] = [];
  /** The number of writes of each id that are not answered yet. */
  private readonly underWay = new Map<string, number>();
  private readonly deleted: string[] = [];
  private readonly random;
  private ids = 0;

  constructor(
    private readonly app: TestApp,
    private readonly urls: readonly string[],
    private readonly collection: string,
    private readonly values: Values,
  ) {
    this.random = values.random;
  }

  /** Writes the first documents. */
  async begin(count: number): Promise<void> {
    while (this.ids < count) await this.store(Array.from({ length: 900 }, () => this.newId()));
  }

  /** Writes until the work has ended. */
  async beside<T>(work: () => Promise<T>): Promise<T> {
    const beganMs = performance.now();
    const { documents: before } = this;
    let isOver = false;
    const write = async () => {
      while (!isOver) {
        const dueMs = beganMs + ((this.documents - before) * 1_000) / targetRate;
        await delay(Math.max(0, dueMs - performance.now()));
        await this.write(this.values.pick(drawn));
      }
    };
    const writing = Promise.all(Array.from({ length: connections }, write));
    // It is waited for below, and may be rejected before that.
    writing.catch(() => {});
    try {
      return await work();
    } finally {
      isOver = true;
      await writing;
    }
  }

  /** Expects that the log has what was acknowledged since the last time, and nothing else. */
  expectLogged(log: CommitLog): void {
    const isLogged = (one: Acknowledged) => {
      const versions = log.versionsOf(one.id);
      const version =
        one.version === undefined
          ? versions.find(({ height, place }) => height === one.height && place === one.place)
          : versions[one.version - 1];
      // The log cannot have a text that was erased before it was read.
      const seen = version?.text === undefined && this.erased.has(one.id) ? { ...version, text: one.text } : version;
      return (Object.keys(one) as Array<keyof Acknowledged>).every((name) => seen?.[name] === one[name]);
    };
    expect(this.acknowledged.filter((one) => !isLogged(one))).toEqual([]);
    this.acknowledged = [];
    expect(log.versions).toHaveLength(this.documents);
  }

  private async write(kind: Kind): Promise<void> {
    switch (kind) {
      case 'store':
        return this.store(Array.from({ length: 1 + this.random(bulkMax) }, () => this.anyId()));
      case 'put':
        return this.put(this.anyId());
      case 'patch':
        return this.patch(this.anyId());
      case 'delete':
        return this.delete(this.anyId());
      case 'restore':
        return this.put(this.deletedId());
      case 'batch':
        return this.batch(Array.from({ length: 1 + this.random(batchMax) }, () => this.anyId()));
      case 'erase':
        return this.erase(this.anyId());
    }
  }

  private async store(ids: string[]): Promise<void> {
    const data = ids.map((id) => this.document(id));
    const body = { root: `${this.app.appId}::${this.collection}`, data };
    const answer = await this.send<StoreAnswer>(ids, 'POST', '/store', body);
    expect([answer.status, answer.text]).toEqual([202, answer.text]);
    for (const [place, { id, celestia_height: height }] of answer.body.results.entries()) {
      this.acknowledge({ id, height, place, text: JSON.stringify(data[place]) });
    }
  }

  private async put(id: string): Promise<void> {
    const document = this.document(id);
    const answer = await this.send([id], 'PUT', this.pathOf(id), document);
    expect([200, 201]).toContain(answer.status);
    expect(answer.text).toBe(JSON.stringify(document));
    this.acknowledge({ id, version: versionIn(answer), text: answer.text });
  }

  private async patch(id: string): Promise<void> {
    const { pick, value, scalar } = this.values;
    const change = { a: value(), [pick(['b', 'd', 's'])]: null, n: { x: scalar(), '01': null } };
    const answer = await this.send([id], 'PATCH', this.pathOf(id), change);
    expect([200, 404]).toContain(answer.status);
    if (answer.status === 200) this.acknowledge({ id, version: versionIn(answer), text: answer.text });
  }

  private async delete(id: string): Promise<void> {
    const answer = await this.send([id], 'DELETE', this.pathOf(id));
    expect([200, 404]).toContain(answer.status);
    if (answer.status !== 200) return;
    this.acknowledge({ id, version: versionIn(answer) });
    this.deleted.push(id);
  }

  private async batch(ids: string[]): Promise<void> {
    const operations = ids.map((id) => ({
      operation: this.values.pick(['create', 'update', 'delete'] as const),
      collection: this.collection,
      data: { ...this.document(id), deleted: undefined },
    }));
    const answer = await this.send<BatchResult[]>(ids, 'POST', `/api/apps/${this.app.appId}/batch`, { operations });
    expect([answer.status, answer.text]).toEqual([200, answer.text]);
    for (const { status, result } of answer.body) {
      expect([200, 201, 404, 409]).toContain(status);
      if (result) this.acknowledge({ id: result.id, version: result.version, height: result.celestia_height });
    }
  }

  private async erase(id: string): Promise<void> {
    if (this.underWay.has(id)) return;
    this.erased.add(id);
    const { status } = await this.send([], 'DELETE', `${this.pathOf(id)}?erase=true`);
    expect([200, 404]).toContain(status);
    this.gone.add(id);
  }

  private async send<T>(ids: string[], method: string, path: string, body?: object): Promise<Answer<T>> {
    for (const id of ids) this.underWay.set(id, (this.underWay.get(id) ?? 0) + 1);
    const answer = await send<T>(this.values.pick(this.urls), method, path, { key: this.app.key, body });
    for (const id of ids) {
      const others = this.underWay.get(id)! - 1;
      if (others > 0) this.underWay.set(id, others);
      else this.underWay.delete(id);
    }
    return answer;
  }

  private acknowledge(one: Acknowledged): void {
    this.acknowledged.push(one);
    this.documents += 1;
    this.height = Math.max(this.height, one.height ?? 0);
  }

  private document(id: string): Record<string, unknown> {
    return {
      ...this.values.document(0),
      ...(this.random(largeEvery) === 0 && { large: 'x'.repeat(largeBytes) }),
      id,
      ...(this.random(8) === 0 && { deleted: true }),
    };
  }

  private anyId(): string {
    if (this.random(6) === 0) return this.newId();
    const id = this.idOf(1 + this.random(this.random(4) === 0 ? oftenWritten : this.ids));
    return this.erased.has(id) ? this.anyId() : id;
  }

  private deletedId(): string {
    const id = this.deleted.pop();
    return id === undefined || this.erased.has(id) ? this.anyId() : id;
  }

  private newId(): string {
    return this.idOf((this.ids += 1));
  }

  /** Ids whose order is neither that of their numbers nor that of their letters in a language. */
  private idOf(number: number): string {
    return `${['é', 'Z', 'a', '€'][number % 4]!}${number}`;
  }

  private pathOf(id: string): string {
    return `/api/apps/${this.app.appId}/collections/${this.collection}/documents/${encodeURIComponent(id)}`;
  }
}

const versionIn = ({ headers }: Answer<unknown>): number => Number(/\d+/.exec(headers.get('etag')!)![0]);
