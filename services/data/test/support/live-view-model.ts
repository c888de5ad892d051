import { newTicket } from '@granary/shared/ids';
import { sqlState } from '@granary/shared/postgres/errors';
import type { Pool } from '@granary/shared/postgres/pool';
import { eventually } from '@granary/testing/eventually';
import { AfterPlan } from '../../src/commit/after-plan';
import { purgeExpired } from '../../src/usage/retention-purge';
import { liveViewRows } from '../../src/views/live/live-rows';
import { trimLogsOf } from '../../src/views/trim-row-logs';
import { log, noIdempotency, storeRequest, type App, type Methods } from './data-service';
import { parse } from './query-fixture';
import type { Random } from './random';
import { type ViewGenerator } from './view-generator';
import { ViewFollower, type Follow } from './view-follower';
import { viewRecords, type Source, type StoredDocument, type ViewMeaning } from './view-reference';

type Document = { id: string } & Record<string, unknown>;

interface ModelView {
  name: string;
  view: ViewMeaning;
  asked: object;
  sourceCollections: string[];
}

const collections = ['base', 'other'] as const;
type Collection = (typeof collections)[number];

/** What the model looks at in answers, by method. */
interface Answers {
  createCollection: object;
  deleteCollection: object;
  createIndex: { ticketId: string };
  createView: object;
  refreshView: { ticketId: string };
  deleteView: object;
  listViews: { views: Array<{ status: string }> };
  getJob: { status: string; error?: string };
  readView: { json: Buffer };
  store: { resultsJson: Buffer };
  batch: object;
  eraseDocument: object;
}

/** What the model does: by the methods of a service, or by HTTP. */
export type ModelMethods = {
  [M in keyof Answers]: (request: Parameters<Methods[M]>[0]) => Promise<Answers[M]>;
} & { follow: Follow };

export interface ModelContext {
  /** Of the copies of the service: each request goes to any of them. */
  copies: readonly ModelMethods[];
  pool: Pool;
  random: Random;
  generator: ViewGenerator;
}

/**
 * Texts of one instant have no order among themselves where a live view is read: what follows them in the order
 * decides.
 */
function compared(view: ViewMeaning, records: readonly unknown[]): unknown {
  const paths = [...view.sort, ...(view.groups?.by ?? []), ...(view.groups?.aggregates ?? [])];
  const isByInstant = view.groups && paths.some((one) => /(^|\.)d$/.test(typeof one === 'string' ? one : one.path));
  return isByInstant ? records.map((value) => JSON.stringify(value)).sort() : records;
}

const inAnyOrder = (records: readonly unknown[]): string[] => records.map((value) => JSON.stringify(value)).sort();

/** The others are written without a log. */
const isFollowed = ({ name, view }: ModelView): boolean => view.limit === undefined && Number(name.slice(1)) % 4 !== 0;

/** Not every app has a view whose changes are kept. */
function ignoreMissingLog(error: unknown): void {
  if (sqlState(error) !== '42P01') throw error;
}

const lazyName = (name: string): string => `${name}-lazy`;

const textOf = (document: Document): string =>
  JSON.stringify(document).replaceAll(':1,', ':1.0,').replaceAll(':100,', ':1e2,');

/** The collections of one app with what they should hold, and the live views of their documents. */
export class LiveViewModel {
  readonly views: ModelView[] = [];
  /** How many comparisons were made. */
  readonly comparisons = { withMeanings: 0, withLazyViews: 0, withFollowers: 0 };
  /** By the name of a view: names come back with other views. */
  private readonly followers = new Map<string, ViewFollower>();
  /** The lazy views of the same definitions, by name, that have been made. */
  private readonly lazy = new Set<string>();
  private readonly documents = { base: new Map<string, StoredDocument>(), other: new Map<string, StoredDocument>() };
  /** The documents of bulks, to be deleted. */
  private readonly bulks: Array<{ collection: Collection; documents: Document[] }> = [];
  private place = 0;
  private named = 0;

  constructor(
    private readonly context: ModelContext,
    private readonly app: App,
  ) {}

  async createCollections(): Promise<void> {
    for (const collection of collections) await this.createCollection(collection);
  }

  private async createCollection(collection: Collection): Promise<void> {
    const { appId, number } = this.app;
    await this.copy().createCollection({ appId, name: collection, schemaJson: '', readAccess: 'public' });
    // By its index the field is a date.
    const ticketId = newTicket('j', number);
    const index = {
      name: `${collection}_d`,
      collection,
      indexType: 'date',
      unique: false,
      fieldName: 'd',
      fields: ['d'],
    };
    const made = await this.copy().createIndex({ appId, appNumber: number.toString(), ...index, ticketId });
    if (made.ticketId !== '') await this.completed(made.ticketId);
  }

  async createViews(views: number): Promise<void> {
    const made = Array.from({ length: views }, () => this.makeView());
    await Promise.all(made.map((view) => this.createView(view, 'live')));
    this.views.push(...made);
  }

  /** One acknowledged change, of any of the ways in which documents and their views change. */
  async change(): Promise<void> {
    await this.removeBulks();
    const kind = this.context.random(60);
    if (kind === 0) return this.recreateSource();
    if (kind === 1) return this.rebuild();
    if (kind === 2) return this.replaceView();
    if (kind === 3) await this.trimLogs();
    await this.changeDocuments();
  }

  async changeDocuments(): Promise<void> {
    const { random } = this.context;
    const kind = random(20);
    const collection = random(5) < 3 ? 'base' : 'other';
    if (kind === 0) return this.erase(collection);
    if (kind === 1) return this.purge(collection);
    if (kind === 2) return this.bulk(collection);
    if (kind === 3) return this.storeOnBoth(collection);
    if (kind === 4) return this.storeBoth();
    await this.store(collection, this.changedDocuments(1 + random(kind < 8 ? 40 : 4), 'k'));
  }

  async check(moment: object, hasFollowers = true): Promise<void> {
    const sources = this.sources();
    const found = await Promise.all(this.views.map(({ name }) => this.read(name)));
    for (const [at, { name, view, asked }] of this.views.entries()) {
      const seen = { moment, name, asked, records: compared(view, found[at]!) };
      expect(seen).toEqual({ ...seen, records: compared(view, viewRecords(view, sources)) });
      this.comparisons.withMeanings += 1;
    }
    if (!hasFollowers) return;
    for (const [at, view] of this.views.entries())
      if (isFollowed(view)) await this.checkFollower(view, found[at]!, moment);
  }

  /** Whoever follows a view has its rows, however often they have changed since the last time, and none twice. */
  private async checkFollower({ name, asked }: ModelView, records: readonly unknown[], moment: object): Promise<void> {
    // Some lag behind, but not where the documents of a bulk are there for one check only.
    if (this.bulks.length === 0 && this.context.random(3) > 0) return;
    const follower = this.followers.get(name) ?? new ViewFollower(this.app.appId, name);
    this.followers.set(name, follower);
    const rows = await follower.catchUp((request) => this.copy().follow(request), this.context.random);
    const seen = { moment, name, asked, rows: inAnyOrder(rows) };
    expect(seen).toEqual({ ...seen, rows: inAnyOrder(records) });
    this.comparisons.withFollowers += 1;
  }

  /** The same definitions as lazy views, which are filled anew, give the same texts. */
  async checkLazy(): Promise<void> {
    await Promise.all(this.views.map((view) => this.fillLazy(view)));
    for (const { name, view, asked } of this.views) {
      const [ofLive, ofLazy] = [compared(view, await this.read(name)), compared(view, await this.read(lazyName(name)))];
      expect({ asked, records: ofLive }).toEqual({ asked, records: ofLazy });
      this.comparisons.withLazyViews += 1;
    }
  }

  private async fillLazy(view: ModelView): Promise<void> {
    const name = lazyName(view.name);
    if (this.lazy.has(name)) return this.refresh(name);
    await this.createView({ ...view, name }, 'lazy');
    this.lazy.add(name);
  }

  /** Every view is whole again in the end. */
  async checkReady(): Promise<void> {
    // An erasure on the way has queued builds anew.
    await eventually(async () => {
      const { views } = await this.copy().listViews({ appId: this.app.appId, limit: 100, cursor: '' });
      return views.every(({ status }) => status === 'ready');
    });
  }

  /** A view that is not whole gives the same. */
  async checkComputed(): Promise<void> {
    await this.context.pool.query(
      `update view set table_number = null where app_number = $1 and refresh_mode = 'live'`,
      [this.app.number],
    );
    await this.check({ computed: true }, false);
  }

  private copy(): ModelMethods {
    const { copies, random } = this.context;
    return copies[random(copies.length)]!;
  }

  private makeView(): ModelView {
    const { view, query, sourceCollections } = this.context.generator.makeView({ isLive: true });
    this.named += 1;
    return { name: `v${this.named}`, view, asked: query, sourceCollections };
  }

  private async createView(made: ModelView, refreshMode: string): Promise<void> {
    const { name, asked, sourceCollections } = made;
    const { appId, number } = this.app;
    const ticketId = newTicket('j', number);
    await this.copy().createView({
      appId,
      appNumber: number.toString(),
      name,
      queryJson: Buffer.from(JSON.stringify(asked)),
      sourceCollections,
      refreshMode,
      variablesJson: Buffer.from(''),
      readAccess: '',
      keepsChanges: refreshMode === 'live' && isFollowed(made),
      ticketId,
    });
    await this.completed(ticketId);
  }

  private async completed(ticketId: string): Promise<void> {
    await eventually(async () => {
      const job = await this.copy().getJob({ ticketId });
      if (job.status === 'Failed') throw new Error(`the job failed: ${job.error}`);
      return job.status === 'Completed';
    });
  }

  private async read(name: string): Promise<unknown[]> {
    const parameters = [{ name: 'limit', value: '10000' }];
    const { appId } = this.app;
    return parse(await this.copy().readView({ appId, name, parameters, mayReadPrivate: false })).records;
  }

  private sources(): ReadonlyMap<string, Source> {
    const sourceOf = (collection: Collection): Source => {
      const documents = [...this.documents[collection].values()].sort((a, b) =>
        Buffer.compare(Buffer.from(String(a.document['id'])), Buffer.from(String(b.document['id']))),
      );
      return { documents, dates: new Set(['d']) };
    };
    return new Map(collections.map((collection) => [collection, sourceOf(collection)]));
  }

  private changed(id: string): Document {
    const { random, generator } = this.context;
    return Object.assign(generator.makeDocument(id), random(6) === 0 ? { deleted: true } : {});
  }

  private changedDocuments(length: number, prefix: string): Document[] {
    return Array.from({ length }, () => this.changed(`${prefix}${this.context.random(60)}`));
  }

  private async send(collection: Collection, documents: readonly Document[], copy = this.copy()): Promise<number> {
    const { resultsJson } = await copy.store(
      storeRequest(this.app, collection, `[${documents.map(textOf).join(',')}]`),
    );
    const [first] = JSON.parse(resultsJson.toString()) as Array<{ celestia_height: number }>;
    return first!.celestia_height;
  }

  private stored(collection: Collection, documents: readonly Document[]): void {
    const present = this.documents[collection];
    for (const document of documents) {
      present.delete(document.id);
      this.place += 1;
      if (document['deleted'] !== true) present.set(document.id, { document, place: this.place });
    }
  }

  private async store(collection: Collection, documents: readonly Document[]): Promise<void> {
    await this.send(collection, documents);
    this.stored(collection, documents);
  }

  /** Documents of both collections come, change and go in one transaction. */
  private async storeBoth(): Promise<void> {
    const { random } = this.context;
    const changed = new Map<string, { collection: Collection; operation: string; data: Document }>();
    for (let left = 2 + random(12); left > 0; left -= 1) {
      const [collection, id] = [collections[random(2)]!, `k${random(12)}`];
      const present = this.documents[collection].get(id);
      const isKept = random(3) > 0;
      const operation = !present ? 'create' : isKept ? 'update' : 'delete';
      const data = !present ? this.context.generator.makeDocument(id) : isKept ? { id, ref: `k${random(12)}` } : { id };
      changed.set(`${collection}/${id}`, { collection, operation, data });
    }
    const operations = [...changed.values()].map(
      ({ collection, operation, data }) =>
        `{"operation":"${operation}","collection":"${collection}","data":${textOf(data)}}`,
    );
    const body = Buffer.from(`{"atomic":true,"operations":[${operations.join(',')}]}`);
    const { appId, number } = this.app;
    const ticketId = newTicket('c', number);
    await this.copy().batch({ appId, appNumber: number.toString(), ticketId, body, idempotency: noIdempotency });
    for (const { collection, operation, data } of changed.values()) {
      const before = this.documents[collection].get(data.id)?.document;
      this.stored(collection, [{ ...before, ...data, ...(operation === 'delete' && { deleted: true }) }]);
    }
  }

  /** Both copies store some of the same documents at the same time: the heights give the order. */
  private async storeOnBoth(collection: Collection): Promise<void> {
    const { copies, random } = this.context;
    const sent = await Promise.all(
      copies.map(async (copy) => {
        const documents = this.changedDocuments(1 + random(20), 'k');
        return { documents, height: await this.send(collection, documents, copy) };
      }),
    );
    for (const { documents } of sent.sort((a, b) => a.height - b.height)) this.stored(collection, documents);
  }

  /** New documents that may be copied ahead, with known ones among them or not. */
  private async bulk(collection: Collection): Promise<void> {
    const isPreloaded = this.context.random(2) === 0;
    this.named += 1;
    const documents = Array.from({ length: 120 }, (_, at) => ({
      ...this.changed(`b${this.named}-${at}`),
      padding: isPreloaded ? 'x'.repeat(1_200) : '',
    }));
    await this.store(collection, isPreloaded ? documents : [...documents, this.changed('k1'), this.changed('k2')]);
    this.bulks.push({ collection, documents: documents.map(({ id }) => ({ id, deleted: true })) });
  }

  /** After the check that follows a bulk, the rest of the run has few documents again. */
  private async removeBulks(): Promise<void> {
    for (const { collection, documents } of this.bulks.splice(0)) await this.store(collection, documents);
  }

  private someIds(collection: Collection, most: number): string[] {
    const ids = [...this.documents[collection].keys()];
    return Array.from({ length: Math.min(most, ids.length) }, () => ids[this.context.random(ids.length)]!);
  }

  private async erase(collection: Collection): Promise<void> {
    const [id] = this.someIds(collection, 1);
    if (id === undefined) return;
    const { appId, number } = this.app;
    const named = { appId, appNumber: number.toString(), collection, id };
    await this.copy().eraseDocument({ ...named, ifMatch: null, idempotency: noIdempotency });
    this.documents[collection].delete(id);
  }

  /** Some documents are made older than the retention. While a live view is built its collection is not purged. */
  private async purge(collection: Collection): Promise<void> {
    const { pool } = this.context;
    const ids = this.someIds(collection, 5);
    const { rows } = await pool.query<{ number: string }>(
      `update collection set retention_days = 7 where app_number = $1 and name = $2 and deleted_at is null returning number::text`,
      [this.app.number, collection],
    );
    const table = `a_${this.app.number}.c_${rows[0]!.number}`;
    await pool.query(`update ${table} set updated_at = now() - interval '8 days' where id = any($1)`, [ids]);
    await eventually(async () => {
      await purgeExpired({ pool, log, derived: new AfterPlan(liveViewRows).removals });
      const left = await pool.query(`select from ${table} where id = any($1)`, [ids]);
      return left.rowCount === 0;
    });
    await pool.query('update collection set retention_days = null where app_number = $1', [this.app.number]);
    for (const id of ids) this.documents[collection].delete(id);
  }

  /** A collection goes with its views, and both come back: the documents do not. */
  private async recreateSource(): Promise<void> {
    const { appId } = this.app;
    const collection = collections[this.context.random(2)]!;
    await this.copy().deleteCollection({ appId, name: collection, force: true, cascade: true });
    this.documents[collection].clear();
    this.bulks.length = 0;
    await this.createCollection(collection);
    await this.changeDocuments();
    const gone = this.views.filter(({ sourceCollections }) => sourceCollections.includes(collection));
    for (const { name } of gone) this.lazy.delete(lazyName(name));
    await this.beside(() => Promise.all(gone.map((view) => this.createView(view, 'live'))));
  }

  /** The oldest changes of rows are forgotten while documents change. */
  private async trimLogs(): Promise<void> {
    const { pool, random } = this.context;
    const limits = { keptChanges: random(20), excessChanges: random(10) };
    await this.beside(() => trimLogsOf({ pool, log }, this.app.number, limits).catch(ignoreMissingLog));
  }

  /** A view is built again while documents change. */
  private async rebuild(): Promise<void> {
    const { name } = this.views[this.context.random(this.views.length)]!;
    await this.beside(() => this.refresh(name));
  }

  private async refresh(name: string): Promise<void> {
    const { appId, number } = this.app;
    const { ticketId } = await this.copy().refreshView({ appId, name, ticketId: newTicket('j', number) });
    await this.completed(ticketId);
  }

  /** A view goes, and another one is built while documents change. */
  private async replaceView(): Promise<void> {
    const at = this.context.random(this.views.length);
    const old = this.views[at]!;
    const made = this.makeView();
    const hasLazy = this.lazy.delete(lazyName(old.name));
    for (const name of [old.name, ...(hasLazy ? [lazyName(old.name)] : [])]) {
      await this.copy().deleteView({ appId: this.app.appId, name, ticketId: '' });
    }
    await this.beside(() => this.createView(made, 'live'));
    this.views[at] = made;
  }

  /** Documents change until `work` has ended. */
  async beside(work: () => Promise<unknown>): Promise<void> {
    let hasEnded = false;
    const ended = work().finally(() => (hasEnded = true));
    const change = async () => {
      do await this.changeDocuments();
      while (!hasEnded);
    };
    await Promise.all([ended, change()]);
  }
}
