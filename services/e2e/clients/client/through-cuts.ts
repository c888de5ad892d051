import { deepStrictEqual } from 'node:assert';
import { readFileSync } from 'node:fs';
import { granary, GranaryError, type ChangeEvent, type Stored } from '@granary/client';
import type { Target } from './checks.js';
import { CuttingProxy } from './cutting-proxy.js';
import { seededRandom } from './random.js';

/**
 * What the client promises while connections are cut off: it writes nothing twice and loses nothing that it has said to
 * be written; a feed tells each change once; a map and an export are those of the service.
 */
interface Note {
  text: string;
  n: number;
}

interface Notes {
  collections: { notes: { document: Note }; marks: { document: { n: number } } };
  views: object;
  queries: object;
}

interface Task {
  target: Target;
  seed: number;
  writes: number;
  cuts: number;
}

const { target, seed, writes, cuts } = JSON.parse(readFileSync(0, 'utf8')) as Task;
const random = seededRandom(seed);
const direct = granary<Notes>(target);
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Each connection is cut at some time: while a request is sent, or with a part of an answer or none of it. */
async function writeThroughCuts(): Promise<number> {
  const proxy = await CuttingProxy.start(target.url, () => ({
    sent: random(4) === 0 ? random(600) : Infinity,
    received: random(3_000),
  }));
  const app = granary<Notes>({ ...target, url: proxy.url, retries: 30, timeoutMs: 120_000 });
  let next = 0;
  const outcomes = new Map<number, boolean>();
  const write = async () => {
    while (next < writes) {
      const n = next++;
      const work =
        n % 2 === 0
          ? app.collection('marks').store([{ n }, { n }])
          : app.batch(['a', 'b'].map((part) => ({ operation: 'create', collection: 'marks', data: { part, n } })));
      outcomes.set(
        n,
        await work.then(
          () => true,
          () => false,
        ),
      );
    }
  };
  await Promise.all([write(), write(), write(), write()]);
  proxy.stop();
  const counts = new Map<number, number>();
  for await (const { n } of direct.collection('marks').find()) counts.set(n, (counts.get(n) ?? 0) + 1);
  for (const [n, isWritten] of outcomes) {
    const count = counts.get(n) ?? 0;
    if (count === 2 || (!isWritten && count === 0)) continue;
    throw new Error(`write ${n}, which ${isWritten ? 'succeeded' : 'failed'}, is there ${count} times in place of 2`);
  }
  deepStrictEqual([...outcomes.values()].filter((isWritten) => !isWritten).length, 0, 'writes that failed');
  return proxy.cuts;
}

/** A text that is as long when it is compressed. */
function textOf(length: number): string {
  let text = '';
  while (text.length < length) text += random(2 ** 31).toString(36);
  return text;
}

async function changeNotes(isOver: () => boolean): Promise<void> {
  const notes = direct.collection('notes');
  for (let n = 0; !isOver(); n += 1) {
    const id = `n${random(40)}`;
    const kind = random(6);
    if (kind === 0) await notes.delete(id).catch(ignoreMissing);
    else if (kind === 1) await notes.patch(id, { n }).catch(ignoreMissing);
    else if (kind === 2) await notes.erase(id).catch(ignoreMissing);
    else
      await notes.store([
        { id, text: textOf(random(3_000)), n },
        ...(kind === 3 ? [{ id: `n${random(40)}`, text: '', n }] : []),
      ]);
    await pause(random(10));
  }
}

function ignoreMissing(error: unknown): void {
  if (!(error instanceof GranaryError) || error.code !== 'DOCUMENT_NOT_FOUND') throw error;
}

/** Of a version that was erased since nobody knows any more whether it was a deletion. */
const identity = (event: ChangeEvent<Note>): string =>
  event.event === 'reset' ? 'reset' : `${event.height}.${event.place} ${String(event.id)}`;

async function present(app = direct): Promise<Array<Stored<Note>>> {
  const all: Array<Stored<Note>> = [];
  for await (const note of app.collection('notes').export()) all.push(note);
  return all;
}

async function exportThroughCuts(): Promise<number> {
  const expected = await present();
  const proxy = await CuttingProxy.start(target.url, () => ({ sent: Infinity, received: random(120_000) }));
  const app = granary<Notes>({ ...target, url: proxy.url, retries: 30, timeoutMs: 120_000 });
  while (proxy.cuts < 20) deepStrictEqual(await present(app), expected, 'what was exported');
  proxy.stop();
  return proxy.cuts;
}

async function followThroughCuts(): Promise<number> {
  const notes = direct.collection('notes');
  await notes.store(Array.from({ length: 40 }, (_, n) => ({ id: `n${n}`, text: textOf(20_000), n })));
  const proxy = await CuttingProxy.start(target.url, () => ({
    sent: Infinity,
    received: random(2) === 0 ? random(100_000) : Infinity,
  }));
  const app = granary<Notes>({ ...target, url: proxy.url, retries: 30, timeoutMs: 120_000 });
  const live = app.collection('notes').follow();
  const odd = app.collection('notes').follow({ find: { n: { gte: 20 } } });
  const told: string[] = [];
  const end = new AbortController();
  const reading = (async () => {
    for await (const event of app.collection('notes').changes({ since: 0, signal: end.signal }))
      told.push(identity(event));
  })().catch(() => {});
  const cutting = setInterval(() => proxy.cutAll(), 150);
  await changeNotes(() => proxy.cuts >= cuts);
  clearInterval(cutting);
  await notes.put({ id: 'last', text: '', n: 1_000_000 });
  const expected: string[] = [];
  for await (const event of notes.changes({ since: 0 })) {
    expected.push(identity(event));
    if (event.event === 'put' && event.id === 'last') break;
  }
  while (!live.has('last') || !odd.has('last') || told.length < expected.length) await pause(20);
  await pause(200);
  deepStrictEqual(told, expected, 'the changes that were told');
  const all = await present();
  deepStrictEqual(byId([...live.values()] as Array<Stored<Note>>), byId(all), 'the map');
  deepStrictEqual(
    byId([...odd.values()] as Array<Stored<Note>>),
    byId(all.filter(({ n }) => n >= 20)),
    'the map of a filter',
  );
  end.abort();
  await reading;
  for (const map of [live, odd]) map.close();
  proxy.stop();
  return proxy.cuts;
}

const byId = (notes: Array<Stored<Note>>) => [...notes].sort((one, other) => (one.id < other.id ? -1 : 1));

const cutsOfWrites = await writeThroughCuts();
const cutsOfFollowing = await followThroughCuts();
const cutsOfExports = await exportThroughCuts();
console.log(JSON.stringify({ cutsOfWrites, cutsOfFollowing, cutsOfExports }));
