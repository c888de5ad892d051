import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { send, type ListAnswer, type StoreAnswer } from '../support/granary';
import type { OwnGranary } from '../support/own-process';

const writers = 6;
/** The number of writers that write bulks, which are copied while others are under way. */
const bulkWriters = 3;
const bulkCount = 150;
const padding = 'x'.repeat(1_000);

/** The ids of one write: of a bulk, those of its documents. */
export const idsOf = (write: string): string[] =>
  write.startsWith('bulk') ? Array.from({ length: bulkCount }, (_, n) => `${write}/${n}`) : [write];

/** Writers that go on until told to stop; what was answered with 202 must be there for ever. */
export class Writing {
  readonly acknowledged = new Set<string>();
  private stopped = false;
  private readonly loops: Array<Promise<void>>;

  constructor(granary: () => OwnGranary, round: string) {
    this.loops = Array.from({ length: writers }, async (_, writer) => {
      for (let n = 0; !this.stopped; n++) {
        const id = `${writer < bulkWriters ? 'bulk' : 'one'}-${round}-${writer}-${n}`;
        const { url, app } = granary();
        // A connection that is refused or cut has no answer: nothing is known of that write.
        const answer = await send<StoreAnswer>(url, 'POST', '/store', {
          key: app.key,
          body: { root: `${app.appId}::writes`, data: idsOf(id).map((one) => ({ id: one, n, padding })) },
        }).catch(() => undefined);
        if (answer?.status === 202) this.acknowledged.add(id);
        else await new Promise((resolve) => setTimeout(resolve, 10));
      }
    });
  }

  /** Resolves when so many more writes were acknowledged. */
  async more(count: number): Promise<void> {
    const goal = this.acknowledged.size + count;
    await eventually(async () => this.acknowledged.size >= goal, 30_000);
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await Promise.all(this.loops);
  }
}

/** The ids of all versions of documents that the writers have stored. */
export async function storedIds({ url, app }: OwnGranary): Promise<string[]> {
  const ids: string[] = [];
  for (let offset = 0; ; offset += 10_000) {
    const answer = await send<ListAnswer<{ id: string }>>(url, 'POST', '/list', {
      key: app.key,
      body: {
        root: `${app.appId}::writes`,
        include_history: true,
        sort: ['id'],
        select: ['id'],
        limit: 10_000,
        offset,
      },
    });
    expect(answer.status).toBe(200);
    ids.push(...answer.body.records.map(({ id }) => id));
    if (answer.body.records.length < 10_000) return ids;
  }
}

/** The process id of the Postgres of a data directory. */
export async function postmasterPid(dataDir: string): Promise<number> {
  return Number((await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0]);
}
