import { newTicket } from '@granary/shared/ids';
import type { Pool } from '@granary/shared/postgres/pool';
import { eventually } from '@granary/shared/testing/eventually';
import { AfterPlan } from '../../src/commit/after-plan';
import { purgeExpired } from '../../src/usage/retention-purge';
import { liveViewRows } from '../../src/views/live/live-rows';
import { log, noIdempotency, storeRequest, type App, type Methods } from './data-service';
import { parse } from './query-fixture';
import type { Random } from './random';
import { rounded, type ViewGenerator } from './view-generator';
import { viewRecords, type Source, type StoredDocument, type ViewMeaning } from './view-reference';

type Document = { id: string } & Record<string, unknown>;

interface ModelView {
  name: string;
  view: ViewMeaning;
  asked: object;
}

export interface ModelContext {
  /** Of the copies of the service: each request goes to any of them. */
  copies: readonly Methods[];
  pool: Pool;
  random: Random;
  generator: ViewGenerator;
}

/** How many comparisons were made, and changes of each kind. */
export const modelCounts: Record<string, number> = {};
const count = (kind: string): void => void (modelCounts[kind] = (modelCounts[kind] ?? 0) + 1);

/** Texts of one instant have no order among themselves where a live view is read: what follows them in the order decides. */
function compared(view: ViewMeaning, records: readonly unknown[]): unknown {
  const paths = [...view.sort, ...(view.groups?.by ?? []), ...(view.groups?.aggregates ?? [])];
  const isByInstant = view.groups && paths.some((one) => (typeof one === 'string' ? one : one.path) === 'd');
  const values = rounded(records) as unknown[];
  return isByInstant ? values.map((value) => JSON.stringify(value)).sort() : values;
}

/** The collection of one app with what it should hold, and the live views of its documents. */
export class LiveViewModel {
  readonly views: ModelView[] = [];
  private readonly documents = new Map<string, StoredDocument>();
  private place = 0;
  private named = 0;

  constructor(
    private readonly context: ModelContext,
    private readonly app: App,
  ) {}

  async createCollection(): Promise<void> {
    const { appId, number } = this.app;
    await this.copy().createCollection({ appId, name: 'base', schemaJson: '', readAccess: 'public' });
    // By its index the field is a date.
    const ticketId = newTicket('j', number);
    const index = {
      name: 'base_d',
      collection: 'base',
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
    const kind = this.context.random(60);
    if (kind === 0) return this.recreateSource();
    if (kind === 1) return this.rebuild();
    if (kind === 2) return this.replaceView();
    await this.changeDocuments();
  }

  async changeDocuments(): Promise<void> {
    const { random } = this.context;
    const kind = random(20);
    if (kind === 0) return this.erase();
    if (kind === 1) return this.purge();
    if (kind === 2) return this.bulk();
    if (kind === 3) return this.storeOnBoth();
    await this.store(this.changedDocuments(1 + random(kind < 7 ? 40 : 4), 'k'));
  }

  async check(moment: object): Promise<void> {
    const sources = this.sources();
    for (const { name, view, asked } of this.views) {
      const seen = { moment, name, asked, records: compared(view, await this.read(name)) };
      expect(seen).toEqual({ ...seen, records: compared(view, viewRecords(view, sources)) });
      count('comparisons');
    }
  }

  /** The same definitions as lazy views give the same texts. */
  async checkLazy(): Promise<void> {
    for (const { name, view, asked } of this.views) {
      const lazy = { name: `${name}-lazy`, view, asked };
      await this.createView(lazy, 'lazy');
      const [ofLive, ofLazy] = [compared(view, await this.read(name)), compared(view, await this.read(lazy.name))];
      expect({ asked, records: ofLive }).toEqual({ asked, records: ofLazy });
      count('comparisons with a lazy view');
    }
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
    await this.check({ computed: true });
  }

  private copy(): Methods {
    const { copies, random } = this.context;
    return copies[random(copies.length)]!;
  }

  private makeView(): ModelView {
    const { view, query } = this.context.generator.makeView({ hasJoins: false });
    this.named += 1;
    return { name: `v${this.named}`, view, asked: query };
  }

  private async createView({ name, asked }: ModelView, refreshMode: string): Promise<void> {
    const { appId, number } = this.app;
    const ticketId = newTicket('j', number);
    await this.copy().createView({
      appId,
      appNumber: number.toString(),
      name,
      queryJson: Buffer.from(JSON.stringify(asked)),
      sourceCollections: ['base'],
      refreshMode,
      variablesJson: Buffer.from(''),
      readAccess: '',
      ticketId,
    });
    await this.completed(ticketId);
    count(`${refreshMode} views`);
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
    const documents = [...this.documents.values()].sort((a, b) =>
      Buffer.compare(Buffer.from(String(a.document['id'])), Buffer.from(String(b.document['id']))),
    );
    return new Map([['base', { documents, dates: new Set(['d']) }]]);
  }

  private changed(id: string): Document {
    const { random, generator } = this.context;
    return Object.assign(generator.makeDocument(id), random(6) === 0 ? { deleted: true } : {});
  }

  private changedDocuments(length: number, prefix: string): Document[] {
    return Array.from({ length }, () => this.changed(`${prefix}${this.context.random(60)}`));
  }

  private async send(documents: readonly Document[], copy = this.copy()): Promise<number> {
    const texts = documents.map((document) =>
      JSON.stringify(document).replaceAll(':1,', ':1.0,').replaceAll(':100,', ':1e2,'),
    );
    const { resultsJson } = await copy.store(storeRequest(this.app, 'base', `[${texts.join(',')}]`));
    const [first] = JSON.parse(resultsJson.toString()) as Array<{ celestia_height: number }>;
    return first!.celestia_height;
  }

  private stored(documents: readonly Document[]): void {
    for (const document of documents) {
      this.documents.delete(document.id);
      this.place += 1;
      if (document['deleted'] !== true) this.documents.set(document.id, { document, place: this.place });
    }
  }

  private async store(documents: readonly Document[]): Promise<void> {
    await this.send(documents);
    this.stored(documents);
    count('stores');
  }

  /** Both copies store some of the same documents at the same time: the heights give the order. */
  private async storeOnBoth(): Promise<void> {
    const { copies, random } = this.context;
    const sent = await Promise.all(
      copies.map(async (copy) => {
        const documents = this.changedDocuments(1 + random(20), 'k');
        return { documents, height: await this.send(documents, copy) };
      }),
    );
    for (const { documents } of sent.sort((a, b) => a.height - b.height)) this.stored(documents);
    count('stores on both copies');
  }

  /** New documents that may be copied ahead, with known ones among them or not. */
  private async bulk(): Promise<void> {
    const isPreloaded = this.context.random(2) === 0;
    this.named += 1;
    const documents = Array.from({ length: 120 }, (_, at) => ({
      ...this.changed(`b${this.named}-${at}`),
      padding: isPreloaded ? 'x'.repeat(1_200) : '',
    }));
    await this.store(isPreloaded ? documents : [...documents, this.changed('k1'), this.changed('k2')]);
    // The rest of the run has few documents again.
    await this.store(documents.map(({ id }) => ({ id, deleted: true })));
    count('bulks');
  }

  private someIds(most: number): string[] {
    const ids = [...this.documents.keys()];
    return Array.from({ length: Math.min(most, ids.length) }, () => ids[this.context.random(ids.length)]!);
  }

  private async erase(): Promise<void> {
    const [id] = this.someIds(1);
    if (id === undefined) return;
    const { appId, number } = this.app;
    const named = { appId, appNumber: number.toString(), collection: 'base', id };
    await this.copy().eraseDocument({ ...named, ifMatch: null, idempotency: noIdempotency });
    this.documents.delete(id);
    count('erasures');
  }

  /** Some documents are made older than the retention. While a live view is built its collection is not purged. */
  private async purge(): Promise<void> {
    const { pool } = this.context;
    const ids = this.someIds(5);
    const { rows } = await pool.query<{ number: string }>(
      `update collection set retention_days = 7 where app_number = $1 and deleted_at is null returning number::text`,
      [this.app.number],
    );
    const table = `a_${this.app.number}.c_${rows[0]!.number}`;
    await pool.query(`update ${table} set updated_at = now() - interval '8 days' where id = any($1)`, [ids]);
    await eventually(async () => {
      await purgeExpired({ pool, log, derived: new AfterPlan(liveViewRows).removals });
      const left = await pool.query(`select from ${table} where id = any($1)`, [ids]);
      return left.rowCount === 0;
    });
    await pool.query('update collection set retention_days = null where app_number = $1', [this.app.number]);
    for (const id of ids) this.documents.delete(id);
    count('purges');
  }

  /** The collection goes with its views, and both come back: the documents do not. */
  private async recreateSource(): Promise<void> {
    const { appId } = this.app;
    await this.copy().deleteCollection({ appId, name: 'base', force: true, cascade: true });
    this.documents.clear();
    await this.createCollection();
    await this.changeDocuments();
    await this.beside(() => Promise.all(this.views.map((view) => this.createView(view, 'live'))));
    count('recreated sources');
  }

  /** A view is built again while documents change. */
  private async rebuild(): Promise<void> {
    const { appId, number } = this.app;
    const { name } = this.views[this.context.random(this.views.length)]!;
    const refreshed = await this.copy().refreshView({ appId, name, ticketId: newTicket('j', number) });
    await this.beside(() => this.completed(refreshed.ticketId));
    count('rebuilt views');
  }

  /** A view goes, and another one is built while documents change. */
  private async replaceView(): Promise<void> {
    const at = this.context.random(this.views.length);
    const old = this.views[at]!;
    const made = this.makeView();
    await this.copy().deleteView({ appId: this.app.appId, name: old.name, ticketId: '' });
    await this.beside(() => this.createView(made, 'live'));
    this.views[at] = made;
    count('replaced views');
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
