import { createIndex } from './app-setup.mjs';
import { fetchJson } from './fetch-json.mjs';
import { settle } from './measure.mjs';
import { startProcess } from './processes.mjs';
import { median, table } from './report.mjs';
import { startSide } from './sides.mjs';

/** Of the time of the statement that an expert writes by hand. */
const wanted = 1.5;
const warmUpSeconds = 2;
const depths = { one: 'one deep', four: 'four deep' };

export const joinsTitle = 'joins: a page of 100 records, beside SQL that an expert writes by hand';

const fill = 'The quick brown fox jumps over the lazy dog. '.repeat(4);
/** Records of each collection. */
const collections = {
  cities: [100, (at) => ({ id: `i${at}`, name: `City ${at}`, fill })],
  teams: [1_000, (at) => ({ id: `t${at}`, city: `i${at % 100}`, fill })],
  people: [10_000, (at) => ({ id: `u${at}`, name: `Person ${at}`, team: `t${(at * 7) % 1_000}`, fill })],
  posts: [20_000, (at) => ({ id: `p${at}`, category: `c${at % 100}`, author: `u${(at * 31) % 10_000}`, fill })],
  comments: [60_000, (at) => ({ id: `m${at}`, post: `p${at % 20_000}`, by: `u${(at * 13) % 10_000}`, fill })],
};

const byId = (model, field, more = {}) => ({
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
 * alternately, one request at a time. Returns, for each depth, `{granary, expert, ratio}`: medians of milliseconds, and
 * of their ratio in a round.
 */
export async function measureJoins(tools, { rounds, seconds }) {
  const { directory, started, postgres, postgresPid } = tools;
  const side = await startSide('embedded', { as: 'joins', postgres, directory, started });
  const app = await side.openApp('joins');
  const expert = startProcess('baselines/expert.mjs');
  started(expert);
  const urls = await postgres.call('makeDatabases', ['bench_expert']);
  const { port } = await expert.call('start', { databaseUrl: urls.bench_expert });
  await loadRecords(side, app, expert);
  await postgres.call('tidy');

  const measured = {};
  for (const depth of Object.keys(depths)) {
    const body = JSON.stringify({ root: 'joins::posts', find: finds[depth], limit: 100, count: 'none' });
    const headers = { ...app.headers, 'Content-Type': 'application/json' };
    const load = { connections: 1, statuses: [200], firstNumber: 0 };
    const sides = {
      granary: { ...load, port: side.port, method: 'POST', path: '/list', headers, body: { text: body } },
      expert: { ...load, port, method: 'GET', path: `/${depth}`, headers: {} },
    };
    await assertSame(sides, body);
    for (const one of Object.values(sides)) await tools.load.call('run', { ...one, seconds: warmUpSeconds });
    const results = [];
    for (let round = 0; round < rounds; round++) {
      const result = {};
      // The order alternates.
      for (const name of round % 2 === 0 ? ['granary', 'expert'] : ['expert', 'granary']) {
        await settle([side], postgresPid);
        result[name] = (await tools.load.call('run', { ...sides[name], seconds })).p50Ms;
      }
      results.push(result);
    }
    measured[depth] = {
      granary: median(results.map(({ granary }) => granary)),
      expert: median(results.map((result) => result.expert)),
      ratio: median(results.map((result) => result.granary / result.expert)),
    };
  }
  return measured;
}

async function loadRecords(side, app, expert) {
  for (const [name, [count, make]] of Object.entries(collections)) {
    for (let from = 0; from < count; from += 5_000) {
      const documents = Array.from({ length: Math.min(5_000, count - from) }, (_, at) => make(from + at));
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

/** Both sides answer the same records. */
async function assertSame({ granary, expert }, body) {
  const url = ({ port, path }) => `http://127.0.0.1:${port}${path}`;
  const [ours, theirs] = await Promise.all([
    fetchJson(url(granary), { body: JSON.parse(body), headers: granary.headers }),
    fetchJson(url(expert)),
  ]);
  const text = (value) =>
    JSON.stringify(value, (_, member) =>
      member && typeof member === 'object' && !Array.isArray(member)
        ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
        : member,
    );
  if (ours.records.length !== 100 || text(ours.records) !== text(theirs.records)) {
    throw new Error('The joins of Granary and of the expert differ.');
  }
}

/** Formats the table of results. */
export function joinsLines(measured) {
  const rows = Object.entries(measured).map(([depth, { granary, expert, ratio }]) => [
    depths[depth],
    `${granary.toFixed(2)} ms`,
    `${expert.toFixed(2)} ms`,
    `× ${ratio.toFixed(2)}`,
    '',
  ]);
  const header = ['', 'Granary', 'by hand', 'ratio', ''];
  return ['', `${joinsTitle} (wanted: × ${wanted} or less)`, ...table([header, ...rows])];
}
