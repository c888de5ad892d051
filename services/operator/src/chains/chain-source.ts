import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { ConfigError } from '@granary/shared/config';
import { FormError, isObject, toHead, type HeadJson } from './commit-lines';

/** The commits of an app, in order, and its head. */
export interface ChainSource {
  appId: string;
  head: HeadJson;
  /** The commits from the first one to the one of the head, or beyond it. */
  commits: AsyncIterable<unknown>;
}

export interface ApiOptions {
  url: string;
  appId: string;
  key: string;
}

const pageCommits = 1_000;
const attemptsMax = 8;

/** The chain as the service shows it, in pages. */
export async function readFromApi(options: ApiOptions, signal: AbortSignal): Promise<ChainSource> {
  const first = await readPage(options, 'from=1', signal);
  async function* commits(): AsyncGenerator<unknown> {
    for (let page = first; ;) {
      yield* page.commits;
      if (page.next === undefined) return;
      page = await readPage(options, `cursor=${encodeURIComponent(page.next)}`, signal);
    }
  }
  return { appId: options.appId, head: toHead(first.head), commits: commits() };
}

interface Page {
  head: unknown;
  commits: unknown[];
  next: string | undefined;
}

async function readPage({ url, appId, key }: ApiOptions, from: string, signal: AbortSignal): Promise<Page> {
  const path = `/api/apps/${encodeURIComponent(appId)}/commits?texts=true&limit=${pageCommits}&${from}`;
  for (let attempt = 1; ; attempt++) {
    const answer = await fetch(url + path, { headers: { 'x-app-key': key }, signal });
    const retryAfter = Number(answer.headers.get('retry-after') ?? Number.NaN);
    if (answer.status === 200) return toPage(await answer.json());
    const text = await answer.text();
    if (Number.isNaN(retryAfter) || attempt >= attemptsMax) {
      throw new ConfigError(`${url} answered ${answer.status}: ${text.slice(0, 500)}`);
    }
    await delay(retryAfter * 1_000, undefined, { signal });
  }
}

function toPage(body: unknown): Page {
  if (!isObject(body) || !Array.isArray(body['commits'])) throw new FormError('The answer is not a page of commits');
  const { head, commits, next_cursor: next } = body;
  return { head, commits, next: typeof next === 'string' ? next : undefined };
}

/** The chain in an export. Call `commits` once. */
export async function readFromFile(file: string): Promise<ChainSource> {
  const input = createReadStream(file, { highWaterMark: 256 * 1024 });
  const lines = createInterface({ input, crlfDelay: Infinity })[Symbol.asyncIterator]();
  let number = 0;
  const next = async (): Promise<unknown> => {
    const line = await lines.next();
    if (line.done === true) return undefined;
    number += 1;
    try {
      return JSON.parse(line.value);
    } catch (error) {
      throw new FormError(`Line ${number} of ${file} is not JSON`, { cause: error });
    }
  };
  const header = await next();
  if (!isObject(header) || header['granary_export'] !== 1) throw new FormError(`${file} is not an export of a chain`);
  async function* commits(): AsyncGenerator<unknown> {
    for (let commit = await next(); commit !== undefined; commit = await next()) yield commit;
  }
  return { appId: String(header['app_id']), head: toHead(header['head']), commits: commits() };
}
