import type { TestApp } from './granary';

/** A version of a document, as the commits of its app have it. */
export interface LoggedVersion {
  height: number;
  /** Its place in the commit. */
  place: number;
  /** When it was committed. */
  at: string;
  id: string;
  version: number;
  sha256: string;
  /** Undefined where the text was erased before this log read it. */
  text: string | undefined;
  document: Record<string, unknown> | undefined;
}

interface CommitsPage {
  head: { height: number };
  commits: Array<{
    height: number;
    at: string;
    place: number;
    documents: Array<{ id: string; sha256: string; text: string | null }>;
  }>;
  next_cursor?: string;
}

/** The commits of an app with one collection, in which no id that was erased is used again. */
export class CommitLog {
  readonly versions: LoggedVersion[] = [];
  private readonly ofDocuments = new Map<string, LoggedVersion[]>();
  private height = 0;

  constructor(private readonly app: TestApp) {}

  /** Adds the commits since the last time. */
  async read(): Promise<void> {
    let position = `from=${this.height + 1}`;
    for (;;) {
      const path = `/api/apps/${this.app.appId}/commits?texts=true&limit=1000&${position}`;
      const { status, body } = await this.app.call<CommitsPage>('GET', path);
      expect([path, status]).toEqual([path, 200]);
      for (const { height, at, place, documents } of body.commits) {
        for (const [index, { text, ...rest }] of documents.entries()) {
          this.add({ ...rest, height, at, place: place + index, text: text ?? undefined });
        }
        this.height = height;
      }
      if (body.next_cursor === undefined) return;
      position = `cursor=${body.next_cursor}`;
    }
  }

  private add(one: Omit<LoggedVersion, 'version' | 'document'>): void {
    const versions = this.versionsOf(one.id);
    const document = one.text === undefined ? undefined : (JSON.parse(one.text) as Record<string, unknown>);
    const logged = { ...one, version: versions.length + 1, document };
    versions.push(logged);
    this.versions.push(logged);
  }

  /** The versions of a document, the oldest first. */
  versionsOf(id: string): LoggedVersion[] {
    let versions = this.ofDocuments.get(id);
    if (!versions) this.ofDocuments.set(id, (versions = []));
    return versions;
  }

  /** All versions up to a height, or the last one of each document, in the order of the bytes of ids. */
  fold(height: number, hasHistory: boolean): LoggedVersion[] {
    const lists = [...this.ofDocuments].map(([id, versions]) => ({
      key: Buffer.from(id),
      versions: versions.filter((one) => one.height <= height),
    }));
    lists.sort((one, other) => Buffer.compare(one.key, other.key));
    return lists.flatMap(({ versions }) => (hasHistory ? versions : versions.slice(-1)));
  }
}
