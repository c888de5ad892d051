import { request, type ClientRequest, type IncomingMessage } from 'node:http';
import { eventually } from '@granary/testing/eventually';

/** An event of a stream, as a client sees it. */
export interface FeedEvent {
  event: string;
  /** The cursor: `id` of a server-sent event, `cursor` of a line. */
  id?: string;
  data: ChangeData;
}

export interface ChangeData {
  height?: number;
  place?: number;
  collection?: string;
  id?: string;
  version?: number | null;
  reason?: string;
  document?: Record<string, unknown> | null;
  as?: string[];
  last?: true;
  head?: number;
  code?: string;
  retry?: boolean;
  [member: string]: unknown;
}

export interface FeedOptions {
  url: string;
  path: string;
  key?: string | undefined;
  accept?: 'text/event-stream' | 'application/x-ndjson';
  /** JSON of a POST. */
  body?: object;
  headers?: Record<string, string>;
}

/** A client of a change feed, which keeps all events in the order in which they came. */
export class FeedClient {
  readonly events: FeedEvent[] = [];
  status = 0;
  headers: IncomingMessage['headers'] = {};
  isClosed = false;
  /** When the last byte came, by performance.now(). */
  lastByteAtMs = 0;
  private text = '';
  private answer: IncomingMessage | undefined;

  private constructor(
    private readonly sent: ClientRequest,
    private readonly isSse: boolean,
  ) {}

  /** Resolves once the head of the answer is there. */
  static open({ url, path, key, accept = 'text/event-stream', body, headers }: FeedOptions): Promise<FeedClient> {
    return new Promise((resolve, reject) => {
      const sent = request(url + path, {
        method: body ? 'POST' : 'GET',
        agent: false,
        headers: {
          accept,
          ...(body && { 'content-type': 'application/json' }),
          ...(key !== undefined && { 'x-app-key': key }),
          ...headers,
        },
      });
      const client = new FeedClient(sent, accept === 'text/event-stream');
      sent.on('response', (answer) => {
        client.take(answer);
        resolve(client);
      });
      sent.on('error', (error) => (client.status === 0 ? reject(error) : (client.isClosed = true)));
      sent.end(body && JSON.stringify(body));
    });
  }

  /** The events of changes. */
  get changes(): FeedEvent[] {
    return this.events.filter(({ event }) => event === 'put' || event === 'remove');
  }

  /** The whole text of an answer that is no stream of events. */
  get rest(): string {
    return this.text;
  }

  /** The cursor to go on from. */
  get cursor(): string | undefined {
    return this.events.findLast(({ id }) => id !== undefined)?.id;
  }

  /** Resolves once there are so many changes. */
  async changed(count: number): Promise<FeedEvent[]> {
    await this.until(`${count} changes`, () => this.changes.length >= count);
    return this.changes;
  }

  /** Resolves once there is an event of a kind. */
  told(kind: string): Promise<FeedEvent> {
    return this.until(`the event ${kind}`, () => this.events.find(({ event }) => event === kind));
  }

  /** Rejects at once where the stream ended before that. */
  private until<T>(title: string, look: () => T | false | undefined): Promise<T> {
    const lookAgain = () => {
      const { isClosed } = this;
      const result = look();
      if (!result && isClosed)
        throw new Error(`the stream ended before ${title}: ${JSON.stringify(this.events.at(-1))}`);
      return result;
    };
    return eventually(lookAgain, 60_000, { title, everyMs: 5 });
  }

  async closed(): Promise<void> {
    await eventually(() => this.isClosed, 60_000, { title: 'the end of the stream', everyMs: 5 });
  }

  pause(): void {
    this.answer?.pause();
  }

  resume(): void {
    this.answer?.resume();
  }

  close(): void {
    this.sent.destroy();
  }

  private take(answer: IncomingMessage): void {
    this.answer = answer;
    this.status = answer.statusCode!;
    this.headers = answer.headers;
    answer.setEncoding('utf8');
    answer.on('data', (text: string) => {
      this.lastByteAtMs = performance.now();
      this.text += text;
      if (this.status === 200) this.read();
    });
    answer.on('close', () => (this.isClosed = true));
    answer.on('error', () => {});
  }

  private read(): void {
    const separator = this.isSse ? '\n\n' : '\n';
    const parts = this.text.split(separator);
    this.text = parts.pop()!;
    for (const part of parts) {
      const event = this.isSse ? sseEvent(part) : lineEvent(part);
      if (event) this.events.push(event);
    }
  }
}

function sseEvent(text: string): FeedEvent | undefined {
  const fields = new Map(text.split('\n').map((line) => [line.split(':', 1)[0]!, line.replace(/^[^:]*: ?/, '')]));
  const [event, data, id] = [fields.get('event'), fields.get('data'), fields.get('id')];
  if (event === undefined || data === undefined) return undefined;
  return { event, data: JSON.parse(data) as ChangeData, ...(id !== undefined && { id }) };
}

function lineEvent(text: string): FeedEvent | undefined {
  if (text === '') return undefined;
  const { event, cursor, ...data } = JSON.parse(text) as ChangeData & { event: string; cursor?: string };
  return { event, data, ...(cursor !== undefined && { id: cursor }) };
}

/** The feeds that one test has open. */
export class FeedClients {
  private readonly clients: FeedClient[] = [];

  async open(options: FeedOptions): Promise<FeedClient> {
    const client = await FeedClient.open(options);
    this.clients.push(client);
    return client;
  }

  close(): void {
    for (const client of this.clients.splice(0)) client.close();
  }
}
