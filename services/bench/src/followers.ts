import { request, type ClientRequest } from 'node:http';
import { serve } from './child';

/** Feeds that are opened at a time. */
const openedAtOnce = 50;

interface Followed {
  port: number;
  /** The path of each feed, with what it asks for. */
  paths: string[];
}

const open: ClientRequest[] = [];
let told = 0;

/** A process that follows feeds: it counts what it is told and does no more, for it shares the cores. */
const calls = {
  /** Opens feeds; resolves once all of them are ready. */
  follow: async ({ port, paths }: Followed): Promise<void> => {
    for (let first = 0; first < paths.length; first += openedAtOnce) {
      await Promise.all(paths.slice(first, first + openedAtOnce).map((path) => follow(port, path)));
    }
  },
  /** How many changes all feeds have been told. */
  told: () => told,
  leave: () => {
    for (const sent of open.splice(0)) sent.destroy();
  },
};

export type FollowerCalls = typeof calls;

serve(calls);

function follow(port: number, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const sent = request({ port, host: '127.0.0.1', path, agent: false, headers: { Accept: 'application/x-ndjson' } });
    open.push(sent);
    sent.on('error', reject);
    sent.on('response', (answer) => {
      if (answer.statusCode !== 200) return reject(new Error(`A feed was answered ${answer.statusCode}.`));
      answer.on('error', () => {});
      answer.on('data', (chunk: Buffer) => {
        // A first `progress` follows `ready`: from then on it is at the head.
        if (chunk.includes('"progress"')) resolve();
        for (let at = chunk.indexOf('"event":"put"'); at >= 0; at = chunk.indexOf('"event":"put"', at + 1)) told += 1;
      });
    });
    sent.end();
  });
}
