import { createIndex } from './app-setup';
import type { ExpertCalls } from './baselines/expert';
import { fetchJson } from './fetch-json';
import type { Load } from './load';
import { settle } from './measure';
import { startProcess, type Child } from './processes';
import { namesOf } from './records';
import { median, table } from './report';
import { startSide, type App, type GranarySide } from './sides';
import type { Lengths, Tools } from './tools';

/** The largest ratio to the time of the statement that an expert writes by hand. */
const wantedRatio = 1.5;
const warmUpSeconds = 2;
const depths = { one: 'one deep', four: 'four deep' };

type Depth = keyof typeof depths;
type Millis = Record<'granary' | 'expert', number>;
/** Medians of milliseconds, and of their ratio in a round. */
type JoinResult = Millis & { ratio: number };
type JoinSides = Record<'granary' | 'expert', Omit<Load, 'seconds'>>;

export const joinsTitle = 'joins: a page of 100 records, beside SQL that an expert writes by hand';

const fill = 'The quick brown fox jumps over the lazy dog. '.repeat(4);
/** The number of records of each collection, and the function that makes them. */
const collections: Record<string, [count: number, make: (index: number) => object]> = {
  cities: [100, (index) => ({ id: `i${index}`, name: `City ${index}`, fill })],
  teams: [1_000, (index) => ({ id: `t${index}`, city: `i${index % 100}`, fill })],
  people: [10_000, (index) => ({ id: `u${index}`, name: `Person ${index}`, team: `t${(index * 7) % 1_000}`, fill })],
  posts: [
    20_000,
    (index) => ({ id: `p${index}`, category: `c${index % 100}`, author: `u${(index * 31) % 10_000}`, fill }),
  ],
  comments: [
    60_000,
    (index) => ({ id: `m${index}`, post: `p${index % 20_000}`, by: `u${(index * 13) % 10_000}`, fill }),
  ],
};

const byId = (model: string, field: string, more: object = {}) => ({
  resolve: { find: { id: `$data.${field}`, ...more } },
  model,
  many: false,
});
const finds = {
  one: { category: 'c7', writer: byId('people', 'author') },
  four: {
    category: 'c7',
    comments: {
      resolve: {
        find: {
          post: '$data.id',
          writer: byId('people', 'by', { group: byId('teams', 'team', { place: byId('cities', 'city') }) }),
        },
      },
      model: 'comments',
    },
  },
};

/**
 * Starts Granary in one process and a process with the expert's statements, with the same records. Both are measured
 * alternately, one request at a time.
 */
export async function measureJoins(tools: Tools, lengths: Lengths): Promise<Record<Depth, JoinResult>> {
  const { directory, onStart, postgres } = tools;
  const side = await startSide('embedded', { as: 'joins', postgres, directory, onStart });
  const app = await side.openApp('joins');
  const expert = startProcess<ExpertCalls>('baselines/expert.js');
  onStart(expert);
  const urls = await postgres.call('makeDatabases', ['bench_expert']);
  const { port } = await expert.call('start', { databaseUrl: urls['bench_expert']! });
  await loadRecords(side, app, expert);
  await postgres.call('tidy');

  const measureDepth = async (depth: Depth) => {
    const body = JSON.stringify({ root: 'joins::posts', find: finds[depth], limit: 100, count: 'none' });
    const headers = { ...app.headers, 'Content-Type': 'application/json' };
    const load = { connections: 1, statuses: [200], firstNumber: 0, requestsMax: Number.MAX_SAFE_INTEGER };
    const sides: JoinSides = {
      granary: { ...load, port: side.port, method: 'POST', path: '/list', headers, body: { text: body } },
      expert: { ...load, port, method: 'GET', path: `/${depth}`, headers: {} },
    };
    await assertSame(sides, body);
    return measureAlternately(tools, side, sides, lengths);
  };
  return { one: await measureDepth('one'), four: await measureDepth('four') };
}

async function measureAlternately(
  tools: Tools,
  side: GranarySide,
  sides: JoinSides,
  { rounds, seconds }: Lengths,
): Promise<JoinResult> {
  for (const one of Object.values(sides)) await tools.load.call('run', { ...one, seconds: warmUpSeconds });
  const results: Millis[] = [];
  for (let round = 0; round < rounds; round++) {
    const result = { granary: 0, expert: 0 };
    // The order alternates.
    for (const name of round % 2 === 0 ? (['granary', 'expert'] as const) : (['expert', 'granary'] as const)) {
      await settle([side], tools.postgresPid);
      result[name] = (await tools.load.call('run', { ...sides[name], seconds })).p50Ms;
    }
    results.push(result);
  }
  return {
    granary: median(results.map(({ granary }) => granary)),
    expert: median(results.map(({ expert }) => expert)),
    ratio: median(results.map(({ granary, expert }) => granary / expert)),
  };
}

async function loadRecords(side: GranarySide, app: App, expert: Child<ExpertCalls>): Promise<void> {
  for (const [name, [count, make]] of Object.entries(collections)) {
    for (let from = 0; from < count; from += 5_000) {
      const documents = Array.from({ length: Math.min(5_000, count - from) }, (_, index) => make(from + index));
      const body = { root: `joins::${name}`, data: documents };
      await fetchJson(`${side.url}/store`, { body, headers: app.headers, statuses: [202] });
      await expert.call('store', { table: name, documents });
    }
  }
  for (const [collection, field] of Object.entries({ posts: 'category', comments: 'post' })) {
    const definition = { name: `${collection}_${field}`, collection, field_name: field, index_type: 'string' };
    await createIndex(side, 'joins', app, definition);
  }
}

/** Throws unless both sides answer with the same records. */
async function assertSame({ granary, expert }: JoinSides, body: string): Promise<void> {
  const url = ({ port, path }: Omit<Load, 'seconds'>) => `http://127.0.0.1:${port}${path}`;
  const [ours, theirs] = await Promise.all([
    fetchJson<{ records: object[] }>(url(granary), { body: JSON.parse(body) as object, headers: granary.headers }),
    fetchJson<{ records: object[] }>(url(expert)),
  ]);
  const text = (value: object) =>
    JSON.stringify(value, (_, member: unknown) =>
      member && typeof member === 'object' && !Array.isArray(member)
        ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
        : member,
    );
  if (ours.records.length !== 100 || text(ours.records) !== text(theirs.records)) {
    throw new Error('The joins of Granary and of the expert differ.');
  }
}

/** Formats the table of results. */
export function joinsLines(results: Record<Depth, JoinResult>): string[] {
  const rows = namesOf(results).map((depth) => {
    const { granary, expert, ratio } = results[depth];
    return [depths[depth], `${granary.toFixed(2)} ms`, `${expert.toFixed(2)} ms`, `× ${ratio.toFixed(2)}`, ''];
  });
  const header = ['', 'Granary', 'by hand', 'ratio', ''];
  return ['', `${joinsTitle} (wanted: × ${wantedRatio} or less)`, ...table([header, ...rows])];
}
