import { request, type ClientRequest } from 'node:http';
import { text } from 'node:stream/consumers';
import { serve } from './child';
import { machineMs } from './clock';

/** Feeds that are opened at a time. */
const openedAtOnce = 50;
const tellTimeoutMs = 60_000;
const lineFeed = 10;
const put = Buffer.from('"event":"put"');
/** The text before the number of a document. */
const documentStart = Buffer.from('"document":{"id":"d');
const idDigits = 10;

interface Followed {
  port: number;
  /** The path of each feed, with what it asks for. */
  paths: string[];
  /** Whether to note when each document arrives. */
  isTimed?: boolean;
}

/** How many feeds were told a document, and when the last of them was, by the clock of the machine. */
export interface Arrival {
  feeds: number;
  lastMs: number;
}

const open: ClientRequest[] = [];
let told = 0;
/** The arrivals by the numbers of their documents. */
const arrivals = new Map<number, Arrival>();
/** Called whenever feeds have been told something. */
let onTold = () => {};

/** A process that follows feeds: it counts what it is told and does no more, for it shares the cores. */
const calls = {
  /** Opens feeds; resolves once all of them are ready. */
  follow: async ({ port, paths, isTimed = false }: Followed): Promise<void> => {
    for (let first = 0; first < paths.length; first += openedAtOnce) {
      await Promise.all(paths.slice(first, first + openedAtOnce).map((path) => follow(port, path, isTimed)));
    }
  },
  /** How many changes all feeds have been told. */
  told: () => told,
  /** Resolves once all feeds together have been told so many changes. Rejects where they are not in a minute. */
  untilTold: (count: number): Promise<void> =>
    new Promise((resolve, reject) => {
      const error = () => reject(new Error(`Feeds were told ${told} changes in place of ${count}.`));
      const timer = setTimeout(error, tellTimeoutMs);
      onTold = () => {
        if (told < count) return;
        onTold = () => {};
        clearTimeout(timer);
        resolve();
      };
      onTold();
    }),
  /** Returns the arrivals at timed feeds since the last call, by the numbers of the documents. */
  arrivals: (): Array<[number, Arrival]> => {
    const all = [...arrivals];
    arrivals.clear();
    return all;
  },
  leave: () => {
    for (const sent of open.splice(0)) sent.destroy();
  },
};

export type FollowerCalls = typeof calls;

serve(calls);

function follow(port: number, path: string, isTimed: boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    const sent = request({ port, host: '127.0.0.1', path, agent: false, headers: { Accept: 'application/x-ndjson' } });
    open.push(sent);
    sent.on('error', reject);
    sent.on('response', (answer) => {
      if (answer.statusCode !== 200) {
        void text(answer).then((why) => reject(new Error(`A feed was answered ${answer.statusCode}: ${why}`)), reject);
        return;
      }
      let rest: Buffer | undefined;
      answer.on('error', () => {});
      answer.on('data', (chunk: Buffer) => {
        const bytes = rest ? Buffer.concat([rest, chunk]) : chunk;
        const end = bytes.lastIndexOf(lineFeed) + 1;
        rest = end < bytes.length ? bytes.subarray(end) : undefined;
        const lines = bytes.subarray(0, end);
        // A first `progress` follows `ready`: from then on it is at the head.
        if (lines.includes('"progress"')) resolve();
        hear(lines, isTimed);
        onTold();
      });
    });
    sent.end();
  });
}

/** Counts the changes in lines, and notes the time at which each arrived. */
function hear(lines: Buffer, isTimed: boolean): void {
  const nowMs = isTimed ? machineMs() : 0;
  for (let start = lines.indexOf(put); start >= 0; start = lines.indexOf(put, start + 1)) {
    told += 1;
    if (isTimed) noteArrival(numberIn(lines, lines.indexOf(documentStart, start) + documentStart.length), nowMs);
  }
}

function noteArrival(number: number, nowMs: number): void {
  const arrival = arrivals.get(number);
  if (arrival) {
    arrival.feeds += 1;
    arrival.lastMs = nowMs;
  } else arrivals.set(number, { feeds: 1, lastMs: nowMs });
}

function numberIn(bytes: Buffer, start: number): number {
  let number = 0;
  for (let index = start; index < start + idDigits; index += 1) number = number * 10 + bytes[index]! - 48;
  return number;
}
