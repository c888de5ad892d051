import { createCollection, createIndex } from './app-setup';
import { settle } from './measure';
import { median, table } from './report';
import { startSide } from './sides';
import type { Lengths, Tools } from './tools';

/** The largest ratio to the p99 without the index. */
const wantedRatio = 2;
const connections = 8;
const warmUpSeconds = 3;

type Millis = Record<'without' | 'with', number>;
/** The medians of p99 over the rounds, and of its ratio in each round. */
type SearchResult = Millis & { ratio: number };

export const searchTitle = 'search: writes of one document with a full-text index, beside the same without';

const sentence =
  'Granary stores documents and finds them again by the words in their texts, whatever form a word has: stored, storing. ';
const text = sentence.repeat(4);

/**
 * Starts Granary in one process, with two collections that differ in the index only, and writes to both alternately.
 */
export async function measureSearch(tools: Tools, { rounds, seconds }: Lengths): Promise<SearchResult> {
  const { directory, onStart, postgres, postgresPid } = tools;
  const side = await startSide('embedded', { as: 'search', postgres, directory, onStart });
  const app = await side.openApp('search');
  const headers = { ...app.headers, 'Content-Type': 'application/json' };
  const collections = { without: 'plain', with: 'words' };
  for (const collection of Object.values(collections)) await createCollection(side, 'search', app, collection);
  await createIndex(side, 'search', app, {
    name: 'text',
    collection: collections.with,
    field_name: 'text',
    index_type: 'fulltext',
    options: { language: 'english' },
  });
  const write = async (name: keyof Millis, length: number) => {
    const body = { text: JSON.stringify({ root: `search::${collections[name]}`, data: [{ text }] }) };
    const load = { port: side.port, method: 'POST', path: '/store', headers, body, statuses: [202], firstNumber: 0 };
    const result = await tools.load.call('run', {
      ...load,
      connections,
      seconds: length,
      requestsMax: Number.MAX_SAFE_INTEGER,
    });
    if (result.refused !== undefined) throw new Error(`A write was refused: ${result.refused}`);
    return result.p99Ms;
  };
  for (const name of ['without', 'with'] as const) await write(name, warmUpSeconds);
  await postgres.call('tidy');
  const results: Millis[] = [];
  for (let round = 0; round < rounds; round++) {
    const result = { without: 0, with: 0 };
    // The order alternates.
    for (const name of round % 2 === 0 ? (['without', 'with'] as const) : (['with', 'without'] as const)) {
      await settle([side], postgresPid);
      result[name] = await write(name, seconds);
    }
    results.push(result);
  }
  return {
    without: median(results.map((one) => one.without)),
    with: median(results.map((one) => one.with)),
    ratio: median(results.map((one) => one.with / one.without)),
  };
}

/** Formats the table of results. */
export function searchLines({ without, with: indexed, ratio }: SearchResult): string[] {
  const row = ['p99', `${without.toFixed(2)} ms`, `${indexed.toFixed(2)} ms`, `× ${ratio.toFixed(2)}`];
  return ['', `${searchTitle} (wanted: × ${wantedRatio} or less)`, ...table([['', 'without', 'with', 'ratio'], row])];
}
