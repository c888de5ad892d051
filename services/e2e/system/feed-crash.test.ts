import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { FeedClient, type FeedOptions } from '../support/feed-client';
import { send, type StoreAnswer } from '../support/granary';
import { CrashingGranary } from './crashing-granary';

const kills = size({ run: 4, long: 200 });
/** Changes between two kills, at least: what feeds tell before they are cut. */
const writesBetween = 40;
const documentsMax = 20;
const seed = seedOf('system/feed-crash');
const random = seededRandom(seed);

let granary: CrashingGranary;
beforeAll(async () => {
  granary = await CrashingGranary.start('feed-crash');
});
afterAll(() => granary?.end());

/** A document by the number of its write and its place in that, as it is told: once. */
type Told = [height: number, place: number, id: string];

/** One that comes again with its last cursor whenever its feed ends. */
class Follower {
  private earlier: Told[] = [];
  private cursor = '0';
  private client: FeedClient | undefined;

  constructor(
    private readonly accept: NonNullable<FeedOptions['accept']>,
    private readonly query: string,
    readonly isFor: (n: number) => boolean,
  ) {}

  get told(): Told[] {
    const now = this.client?.changes ?? [];
    return [...this.earlier, ...now.map(({ data }): Told => [data.height!, data.place!, data.id!])];
  }

  async follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const { url, app } = granary;
      const path = `/api/apps/${app.appId}/changes?since=${this.cursor}${this.query}`;
      const client = await FeedClient.open({ url, path, key: app.key, accept: this.accept }).catch(() => undefined);
      this.client = client;
      while (client && !client.isClosed && !signal.aborted) await delay(10);
      client?.close();
      await client?.closed();
      const { told } = this;
      this.client = undefined;
      this.earlier = told;
      this.cursor = client?.cursor ?? this.cursor;
      await delay(20);
    }
  }
}

/** Stores some documents, again and again until that is acknowledged; what a feed has to tell of them. */
async function write(n: number, signal: AbortSignal): Promise<Told[]> {
  const data = Array.from({ length: 1 + Math.floor(random() * documentsMax) }, (_, place) => ({
    id: `${n}.${place}`,
    n,
    text: 'x'.repeat(Math.floor(random() * 2_000)),
  }));
  const answer = await eventually(async () => {
    signal.throwIfAborted();
    const { url, app } = granary;
    const sent = await send<StoreAnswer>(url, 'POST', '/store', {
      key: app.key,
      headers: { 'idempotency-key': `write-${n}` },
      body: { root: `${app.appId}::documents`, data },
    }).catch(() => undefined);
    return sent?.status === 202 && sent;
  }, 60_000);
  const height = answer.body.results[0]!.celestia_height;
  return data.map(({ id }, place) => [height, place, id]);
}

test(
  `after kill -9 of Granary and of Postgres, by the seed ${seed}, followers with their cursors are told each change once`,
  async () => {
    const odd = encodeURIComponent(JSON.stringify({ n: { in: Array.from({ length: 500 }, (_, n) => 2 * n + 1) } }));
    const late = encodeURIComponent(JSON.stringify({ n: { gte: writesBetween } }));
    const followers = [
      new Follower('text/event-stream', '', () => true),
      new Follower('application/x-ndjson', '', () => true),
      new Follower('text/event-stream', `&collection=documents&find=${odd}`, (n) => n < 1_000 && n % 2 === 1),
      new Follower('application/x-ndjson', `&collection=documents&find=${late}`, (n) => n >= writesBetween),
    ];
    const over = new AbortController();
    const following = followers.map((follower) => follower.follow(over.signal));
    const written: Array<{ n: number; told: Told[] }> = [];
    let isWriting = true;
    const writing = (async () => {
      for (let n = 0; isWriting; n += 1) written.push({ n, told: await write(n, over.signal) });
    })();
    try {
      for (let killed = 0; killed < kills; killed += 1) {
        const count = written.length;
        await eventually(() => written.length >= count + writesBetween, 60_000);
        await delay(random() * 60);
        // Both kinds in any run.
        await (killed % 2 === 0 ? granary.killNode() : granary.killPostgres());
      }
      isWriting = false;
      await writing;
      for (const follower of followers) {
        const expected = written.filter(({ n }) => follower.isFor(n)).flatMap(({ told }) => told);
        await eventually(() => follower.told.length >= expected.length, 60_000);
        expect(follower.told).toEqual(expected);
      }
    } finally {
      isWriting = false;
      over.abort();
      await Promise.allSettled([writing, ...following]);
    }
  },
  sizedLimitMs(limitMs(120_000)),
);
