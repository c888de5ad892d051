import type { Methods } from './data-service';
import type { Random } from './random';

/** A page of the feed of a view. */
export interface FollowedPage {
  changes: ReadonlyArray<{ event: string; id: string; document?: unknown }>;
  cursor: string;
  more: boolean;
}

/** Reads a page of the feed of a view; resolves to undefined where the cursor is gone. */
export type Follow = (request: {
  appId: string;
  view: string;
  since: string;
  limit: number;
}) => Promise<FollowedPage | undefined>;

/** The feed of a view by the method of a service. `bytesMax`: of the texts of a page. */
export const followBy =
  (readChanges: Methods['readChanges'], bytesMax: number): Follow =>
  async ({ appId, view, since, limit }) => {
    const none = Buffer.alloc(0);
    const channel = { collections: [], view, find: none, select: none, location: '' };
    const flags = { omitsDocuments: false, onlyLatest: false, mayReadPrivate: true, isDelegated: false };
    const { changes, cursor, more, refusals } = await readChanges({
      appId,
      since,
      channelsDigest: none,
      channels: [{ ...channel, ...flags }],
      limit,
      bytesMax,
      waitMs: 0,
      catalogRevision: '0',
      isOpening: false,
    });
    const [refusal] = refusals;
    if (refusal?.error?.reason === 'CURSOR_GONE') return undefined;
    if (refusal) throw new Error(refusal.error?.message);
    const events = changes.flatMap((change) => change.events);
    const changed = events.map(({ kind, members }) => {
      const { id, document } = JSON.parse(`{${members.toString()}}`) as { id: string; document?: unknown };
      return { event: kind, id, document };
    });
    return { changes: changed, cursor, more };
  };

/** Holds the rows of a view as its feed tells them, and goes on from the cursor each time. */
export class ViewFollower {
  private readonly rows = new Map<string, unknown>();
  private since = '0';

  constructor(
    private readonly appId: string,
    private readonly view: string,
  ) {}

  /** The rows of now, in no order. */
  async catchUp(follow: Follow, random: Random): Promise<unknown[]> {
    for (;;) {
      const page = await follow({ appId: this.appId, view: this.view, since: this.since, limit: 1 + random(40) });
      if (page) {
        this.apply(page);
        if (!page.more) return [...this.rows.values()];
      } else {
        this.rows.clear();
        this.since = '0';
      }
    }
  }

  private apply({ changes, cursor }: FollowedPage): void {
    for (const { event, id, document } of changes) {
      if (event === 'put') this.rows.set(id, document);
      else this.rows.delete(id);
    }
    this.since = cursor;
  }
}
