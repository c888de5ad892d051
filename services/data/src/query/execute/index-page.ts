import { project, type Projection } from '../../json/project';
import type { SharingReader } from '../../postgres/shared-row';
import type { Row, RowReader } from '../../postgres/rows';
import type { PageRow } from '../plan/cursor';
import type { RecordText } from './encrypted-read';
import type { JoinedRecords } from './joined-records';
import { PageBuffer } from './page-buffer';
import { ResponseSizeEstimate, responseSizeOf } from './response-size';

/** The records of a page, and the row of the last one where there is another page. */
export interface Page {
  records: PageBuffer;
  hasMore: boolean;
  last: PageRow | undefined;
  /** The state of the relation before the page or with it, where that was asked for. */
  state?: string | undefined;
}

/**
 * Makes the page of the rows of an index read, of which one more was asked for than the page may have: that one is not
 * looked at. Gives undefined where the index alone did not do, and the general way has to be gone.
 */
export class IndexPageReader implements SharingReader<Page | undefined> {
  readonly #size: ResponseSizeEstimate;
  readonly #limit: number;
  readonly #projection: Projection;
  readonly #show: RecordText | undefined;
  readonly #records: PageBuffer;
  #rows = 0;
  #isPlaced = true;
  #last: Buffer | undefined;
  #hasState: boolean;
  #state: string | undefined;
  /** Reads the state, in a statement that was sent with this one. */
  #leader: IndexPageReader | undefined;
  #isResent = false;

  /** `shape` is that of the access path; `requestedRows` does not count the row with the state. */
  constructor(
    shape: string,
    requestedRows: number,
    { projection, show }: { projection: Projection; show: RecordText | undefined },
    hasState = false,
  ) {
    this.#hasState = hasState;
    this.#size = responseSizeOf(shape);
    this.#limit = requestedRows - 1;
    this.#projection = projection;
    this.#show = show;
    this.#records = new PageBuffer(this.#size.expected(this.#limit));
  }

  follow(leader: SharingReader<unknown>): void {
    this.#hasState = false;
    this.#leader = leader as IndexPageReader;
  }

  resent(): void {
    this.#isResent = true;
  }

  row(row: Row): void {
    if (this.#hasState) {
      this.#hasState = false;
      this.#state = row.text(0);
      return;
    }
    this.#rows += 1;
    if (row.isNull(0)) this.#isPlaced = false;
    if (!this.#isPlaced || this.#rows > this.#limit) return;
    if (this.#projection === 'all' && !this.#show) {
      this.#records.addColumn(row, 0);
    } else {
      const stored = row.bytes(0);
      if (this.#rows === this.#limit) this.#last = Buffer.from(stored);
      this.#records.add(project(this.#show ? this.#show(stored) : stored, this.#projection));
    }
  }

  end(): Page | undefined {
    if (!this.#isPlaced) return undefined;
    const hasMore = this.#rows > this.#limit;
    this.#size.learn(this.#records.count, this.#records.length, this.#rows >= this.#limit);
    const last = hasMore ? { body: this.#last ?? this.#records.last } : undefined;
    return { records: this.#records, hasMore, last, state: this.#leader ? this.#leader.#sharedState : this.#state };
  }

  /** The state for the pages that follow; undefined where it may be newer than they are. */
  get #sharedState(): string | undefined {
    return this.#isResent ? undefined : this.#state;
  }
}

/** Makes the page of an index read with joins, as IndexPageReader does; its rows have the column `joined` too. */
export class JoinedPageReader implements RowReader<Page | undefined> {
  readonly #size: ResponseSizeEstimate;
  readonly #records: PageBuffer;
  #rows = 0;
  #isPlaced = true;
  #last: Buffer | undefined;

  constructor(
    shape: string,
    private readonly requestedRows: number,
    private readonly writer: JoinedRecords,
  ) {
    this.#size = responseSizeOf(`${shape}\0joined`);
    this.#records = new PageBuffer(this.#size.expected(requestedRows - 1));
  }

  row(row: Row): void {
    this.#rows += 1;
    if (row.isNull(0)) this.#isPlaced = false;
    if (!this.#isPlaced || this.#rows >= this.requestedRows) return;
    const record = this.writer.write(row.bytes(0), row.bytes(1));
    if (!record) this.#isPlaced = false;
    else this.#records.add(record);
    if (this.#rows === this.requestedRows - 1) this.#last = Buffer.from(row.bytes(0));
  }

  end(): Page | undefined {
    if (!this.#isPlaced) return undefined;
    const hasMore = this.#rows >= this.requestedRows;
    this.#size.learn(this.#records.count, this.#records.length, this.#rows >= this.requestedRows - 1);
    return { records: this.#records, hasMore, last: hasMore ? { body: this.#last! } : undefined };
  }
}
