import { newTicket } from '@granary/shared/ids';
import { scaledMs } from '@granary/shared/testing/speed';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { seededRandom } from './support/random';
import { rounded, viewGenerator } from './support/view-generator';
import { viewRecords, type Source, type StoredDocument, type ViewMeaning } from './support/view-reference';

const seed = Number(process.env['VIEWS_SEED'] ?? 16);
const viewCount = Number(process.env['VIEWS_COUNT'] ?? (process.env['TEST_LONG'] ? 8_000 : 96));
/** As many live views as a collection may have. */
const viewsPerApp = 16;
const batches = 30;
const random = seededRandom(seed);
const generator = viewGenerator(random);

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());

interface ModelView {
  name: string;
  view: ViewMeaning;
  asked: object;
}

/** Texts of one instant have no order among themselves where a live view is read: what follows them in the order decides. */
function compared(view: ViewMeaning, records: readonly unknown[]): unknown {
  const paths = [...view.sort, ...(view.groups?.by ?? []), ...(view.groups?.aggregates ?? [])];
  const isByInstant = view.groups && paths.some((one) => (typeof one === 'string' ? one : one.path) === 'd');
  const values = rounded(records) as unknown[];
  return isByInstant ? values.map((value) => JSON.stringify(value)).sort() : values;
}

/** The collection of one app with what it should hold, and the views of its documents. */
class Model {
  readonly views: ModelView[] = [];
  readonly documents = new Map<string, StoredDocument>();
  private place = 0;
  private bulks = 0;

  constructor(readonly app: TestApp) {}

  async create(count: number, refreshMode = 'live'): Promise<void> {
    const created = await Promise.all(
      Array.from({ length: count }, (_, at) => {
        const { view, query } = generator.makeView({ hasJoins: false });
        const name = `v${this.views.length + at}`;
        return this.createOne({ name, view, asked: query }, refreshMode);
      }),
    );
    this.views.push(...created);
  }

  async createOne(view: ModelView, refreshMode: string): Promise<ModelView> {
    const ticketId = newTicket('j', this.app.number);
    await fixture.methods.createView({
      appId: this.app.appId,
      appNumber: this.app.number.toString(),
      name: view.name,
      queryJson: Buffer.from(JSON.stringify(view.asked)),
      sourceCollections: ['base'],
      refreshMode,
      variablesJson: Buffer.from(''),
      readAccess: '',
      ticketId,
    });
    await this.app.completed(ticketId);
    return view;
  }

  /** One acknowledged change, of any of the ways in which documents change. */
  async change(mayErase = true): Promise<void> {
    const kind = random(20);
    if (mayErase && kind === 0) return this.erase();
    if (kind === 1) return this.bulk();
    const documents = Array.from({ length: 1 + random(kind < 6 ? 40 : 4) }, () => this.changed(`k${random(60)}`));
    await this.store(documents);
  }

  private changed(id: string): { id: string } & Record<string, unknown> {
    return Object.assign(generator.makeDocument(id), random(6) === 0 ? { deleted: true } : {});
  }

  /** New documents, some hundreds, with known ones among them or not. */
  private async bulk(): Promise<void> {
    this.bulks += 1;
    const isPreloaded = random(2) === 0;
    const documents = Array.from({ length: 120 }, (_, at) => ({
      ...this.changed(`b${this.bulks}-${at}`),
      padding: isPreloaded ? 'x'.repeat(1_200) : '',
    }));
    await this.store(isPreloaded ? documents : [...documents, this.changed('k1'), this.changed('k2')]);
    // The rest of the run has few documents again.
    await this.store(documents.map(({ id }) => ({ id, deleted: true })));
  }

  private async store(documents: ReadonlyArray<{ id: string } & Record<string, unknown>>): Promise<void> {
    await this.app.store(
      'base',
      documents.map((document) => JSON.stringify(document).replaceAll(':1,', ':1.0,').replaceAll(':100,', ':1e2,')),
    );
    for (const document of documents) {
      this.documents.delete(document.id);
      this.place += 1;
      if (document['deleted'] !== true) this.documents.set(document.id, { document, place: this.place });
    }
  }

  private async erase(): Promise<void> {
    const [id] = [...this.documents.keys()];
    if (id === undefined) return;
    const idempotency = { caller: '', method: '', path: '', key: '', contentHash: Buffer.alloc(0) };
    await fixture.methods.eraseDocument({
      appId: this.app.appId,
      appNumber: this.app.number.toString(),
      collection: 'base',
      id,
      ifMatch: null,
      idempotency,
    });
    this.documents.delete(id);
  }

  private sources(): ReadonlyMap<string, Source> {
    const documents = [...this.documents.values()].sort((a, b) =>
      Buffer.compare(Buffer.from(String(a.document['id'])), Buffer.from(String(b.document['id']))),
    );
    return new Map([['base', { documents, dates: new Set(['d']) }]]);
  }

  async check(moment: object): Promise<void> {
    const sources = this.sources();
    for (const { name, view, asked } of this.views) {
      const { records } = await this.app.read('readView', name, { limit: '10000' });
      const seen = { seed, moment, name, asked, records: compared(view, records) };
      expect(seen).toEqual({ ...seen, records: compared(view, viewRecords(view, sources)) });
    }
  }

  /** A view that is not whole gives the same. */
  async checkComputed(run: number): Promise<void> {
    await fixture.pool.query(
      `update view set table_number = null where app_number = ${this.app.number} and refresh_mode = 'live'`,
    );
    await this.check({ run, computed: true });
  }

  /** The same definitions as lazy views give the same texts. */
  async checkLazy(): Promise<void> {
    for (const { name, view, asked } of this.views) {
      const [live, lazy] = [name, `${name}-lazy`];
      await this.createOne({ name: lazy, view, asked }, 'lazy');
      const read = async (of: string) => (await this.app.read('readView', of, { limit: '10000' })).records;
      const [ofLive, ofLazy] = [compared(view, await read(live)), compared(view, await read(lazy))];
      expect({ seed, asked, records: ofLive }).toEqual({ seed, asked, records: ofLazy });
    }
    const { views } = await fixture.methods.listViews({ appId: this.app.appId, limit: 100, cursor: '' });
    expect(views.filter(({ status }) => status !== 'ready')).toEqual([]);
    // None was broken on the way: each has been built once.
    const jobs = await fixture.pool.query(
      `select from job where app_number = ${this.app.number} and kind = 'view.refresh'`,
    );
    expect(jobs.rows).toHaveLength(2 * this.views.length);
  }
}

async function runModel(run: number, views: number): Promise<void> {
  const app = await fixture.newApp();
  await app.createCollection('base');
  await app.createIndex('base', 'd', 'date');
  const model = new Model(app);
  await model.change();
  // Some of the views are built while documents are there, and some while they change.
  await model.create(Math.floor(views / 2));
  await Promise.all([model.create(Math.ceil(views / 2)), model.change(false)]);
  for (let batch = 0; batch < batches; batch += 1) {
    await model.change();
    await model.check({ run, batch });
  }
  await model.checkLazy();
  await model.checkComputed(run);
}

test(
  'after each acknowledged change every live view has exactly the rows of its meaning, as a lazy view of the same definition',
  async () => {
    for (let made = 0, run = 0; made < viewCount; made += viewsPerApp, run += 1) {
      await runModel(run, Math.min(viewsPerApp, viewCount - made));
    }
  },
  scaledMs(process.env['TEST_LONG'] ? 3_600_000 : 300_000),
);
