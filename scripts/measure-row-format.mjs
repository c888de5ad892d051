// Measures formats of rows with a document and its index keys, for docs/decisions/0002-rows-and-indexes.md.
//
//   node scripts/measure-row-format.mjs postgres://user@host/database [rounds=3] [only=B,C] [counts=1,3,10]
//     [fillfactor=100] [storage=external] [add=only]
//
// Works in a schema of its own, which it drops. CPU is read from /proc, so Postgres must run on this machine.
// The sides alternate inside a round, medians are printed, each with its ratio to B in brackets.
import { readFileSync } from 'node:fs';
import pg from 'pg';

const [url, ...words] = process.argv.slice(2);
const options = Object.fromEntries(words.map((word) => word.split('=')));
const rounds = Number(options.rounds ?? 3);
const counts = (options.counts ?? '1,3,10').split(',').map(Number);

// Reads and sorts use the first field as a number, the second as a string; a date's key is its instant in microseconds.
const numbers = ['score', 'price', 'stock', 'customer,level'];
const fields = 'score customer,code placed_at category customer,address,city price active stock title customer,level'
  .split(' ')
  .map((path, i) => {
    if (path === 'placed_at') return { path, i, type: 'numeric', convert: (text) => Date.parse(text) * 1000 };
    return { path, i, type: numbers.includes(path) ? 'numeric' : path === 'active' ? 'boolean' : 'text' };
  });

const typed = ({ type }) => (type === 'text' ? 'text collate "C"' : type);
const only = (type) => (value, field) => (field.type === type ? String(value) : null);

// columns: name, type and encoder of a field's side columns; keys: the btree columns before the id.
const sides = {
  A: { body: 'text', columns: () => [], keys: ({ path }) => [`row_format.key(body::jsonb #> '{${path}}')`] },
  B: { body: 'text', columns: ({ i }) => [[`k_${i}`, 'jsonb', JSON.stringify]], keys: ({ i }) => [`k_${i}`] },
  C: { body: 'text', columns: (field) => [[`k_${field.i}`, typed(field), String]], keys: ({ i }) => [`k_${i}`] },
  // C, for a field without a declared type: one btree over three columns, which keeps the order of types.
  C3: {
    body: 'text',
    columns: ({ i }) => [
      [`t_${i}`, 'text collate "C"', only('text')],
      [`n_${i}`, 'numeric', only('numeric')],
      [`b_${i}`, 'boolean', only('boolean')],
    ],
    keys: ({ i }) => [`t_${i}`, `n_${i}`, `b_${i}`],
  },
  D: { body: 'jsonb', columns: () => [], keys: ({ path }) => [`(body #> '{${path}}')`] },
};
for (const [name, side] of Object.entries(sides)) side.name = name;
const measured = (options.only?.split(',') ?? Object.keys(sides)).map((name) => sides[name]);

// A seeded generator, so that every side gets the same documents.
function randomFrom(seed) {
  return () => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;
}

const nouns = 'granary harvest ledger signal copper meadow lantern orchard'.split(' ');

function document(i, rows, large, random) {
  const below = (limit) => Math.floor(random() * limit);
  const word = () => nouns[below(8)] + below(1000);
  const address = { city: word(), zip: `${below(1e5)}` };
  const customer = { code: `customer-${below(rows / 5)}`, level: below(10), address };
  const [id, category, title] = [`doc-${String(i).padStart(8, '0')}`, `category-${below(50)}`, `${word()} ${word()}`];
  const [score, price, active, stock] = [below(rows / 5), below(1e8) / 100, random() < 0.5, below(1000)];
  const placed_at = new Date(1.7e12 + below(1e10)).toISOString();
  const tags = [word(), word()];
  const value = { id, category, title, score, price, active, stock, placed_at, customer, tags, note: word() };
  if (!large) return value;
  const text = () => Array.from({ length: 30 }, word).join(' ');
  const sections = Array.from({ length: 23 }, () => ({ heading: word(), text: text() }));
  return { ...value, sections };
}

function keyOf({ path, convert }, value) {
  const rawKey = path.split(',').reduce((at, step) => at[step], value);
  return convert ? convert(rawKey) : rawKey;
}

function prepare(value) {
  return { id: value.id, text: JSON.stringify(value), keys: fields.map((field) => keyOf(field, value)) };
}

const client = new pg.Client(url);
await client.connect();
const query = async (text, values) => (await client.query(text, values)).rows[0];
const { pid } = await query('select pg_backend_pid() as pid');
const cpuUs = () => Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[0]) / 1000;
const walBytes = async () => Number((await query("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn as at")).at);

const samples = new Map();
function record(kase, side, what, value) {
  const bySide = samples.get(`${kase} | ${what}`) ?? new Map();
  samples.set(`${kase} | ${what}`, bySide.set(side, [...(bySide.get(side) ?? []), value]));
}

// Records the CPU time per unit of `run`, of Postgres and of this process, in microseconds.
async function measure(kase, side, what, units, run) {
  const [cpu, nodeUsage] = [cpuUs(), process.cpuUsage()];
  await run();
  const spent = process.cpuUsage(nodeUsage);
  record(kase, side, `${what}: Postgres µs`, (cpuUs() - cpu) / units);
  record(kase, side, `${what}: Node µs`, (spent.user + spent.system) / units);
}

async function createTable(side, indexed) {
  const columns = indexed.flatMap((field) => side.columns(field));
  const row = `id text collate "C", body ${side.body}, version bigint, deleted boolean, created_at timestamptz,
    updated_at timestamptz, height bigint, place int`;
  await client.query(`
    drop table if exists row_format.c, row_format.h;
    create table row_format.c (${row} ${columns.map(([name, type]) => `, ${name} ${type}`).join('')}, primary key (id))
      with (autovacuum_enabled = false, fillfactor = ${options.fillfactor ?? 100});
    create table row_format.h (${row}) with (autovacuum_enabled = false);
    alter table row_format.c alter body set storage ${options.storage ?? 'extended'};
    alter table row_format.h alter body set storage ${options.storage ?? 'extended'};
    create index on row_format.h (id, version);
    ${indexed.map((field) => `create index on row_format.c (${[...side.keys(field), 'id'].join(', ')});`).join('')}`);
}

// Stores 100 documents per statement: new versions go to the table, replaced ones to history.
async function store(side, indexed, documents) {
  const columns = indexed.flatMap((field) =>
    side.columns(field).map(([name, type, send]) => ({ name, type, send, field })),
  );
  const list = columns.map(({ name }) => `, ${name}`).join('');
  const arrays = columns.map(({ type }, i) => `, $${i + 3}::${type.replace(' collate "C"', '')}[]`).join('');
  const text = `
    with stored as (
      insert into row_format.c (id, body, version, deleted, created_at, updated_at, height, place${list})
      select id, body, 1, false, now(), now(), 1, place${list}
      from unnest($1::text[], $2::${side.body}[]${arrays}) with ordinality as given (id, body${list}, place)
      on conflict (id) do update set body = excluded.body, version = c.version + 1, updated_at = excluded.updated_at,
        height = c.height + 1, place = excluded.place${columns.map(({ name }) => `, ${name} = excluded.${name}`).join('')}
      returning old.id, old.body, old.version, old.deleted, old.created_at, old.updated_at, old.height, old.place)
    insert into row_format.h select * from stored where id is not null`;
  for (let from = 0; from < documents.length; from += 100) {
    const batch = documents.slice(from, from + 100);
    const keys = columns.map(({ send, field }) => batch.map((one) => send(one.keys[field.i], field)));
    const values = [batch.map(({ id }) => id), batch.map(({ text }) => text), ...keys];
    await client.query({ name: `store ${side.name} ${indexed.length}`, text, values });
  }
}

// A point read is measured with 500 values per statement, because a round trip costs more than the difference measured.
async function read(side, kase, field, documents) {
  const first =
    side.name === 'C3' && field.type === 'numeric' ? `t_${field.i} is null and n_${field.i}` : side.keys(field)[0];
  const send = side.name.startsWith('C') ? String : JSON.stringify;
  const type = side.name.startsWith('C') ? field.type : 'jsonb';
  const keys = documents.slice(0, 500).map((one) => send(one.keys[field.i]));
  const point = `select count(length(found.body::text)) from unnest($1::${type}[]) as given (k),
    lateral (select body from row_format.c where ${first} = given.k limit 100) as found`;
  const page = `select body from row_format.c where ${first} >= $1::${type}
    order by ${side.keys(field).join(', ')}, id limit 100`;
  const run = (what, text, value) => client.query({ name: `${what} ${side.name} ${field.i}`, text, values: [value] });
  for (let warm = 0; warm < 3; warm++) await Promise.all([run('point', point, keys), run('page', page, keys[warm])]);
  await measure(kase, side.name, `point by ${field.type}`, 10 * keys.length, async () => {
    for (let index = 0; index < 10; index++) await run('point', point, keys);
  });
  await measure(kase, side.name, `page by ${field.type}`, 50, async () => {
    for (let index = 0; index < 50; index++) await run('page', page, keys[index]);
  });
}

async function measureSide(side, large, count, seed) {
  const [indexed, rows, random] = [fields.slice(0, count), large ? 3000 : 20000, randomFrom(seed)];
  const kase = `${large ? '8 KB' : '320 B'}, ${count} indexed`;
  const values = Array.from({ length: rows }, (_, i) => document(i, rows, large, random)).sort(() => random() - 0.5);
  const documents = values.map(prepare);
  await createTable(side, indexed);
  const before = await walBytes();
  await measure(kase, side.name, 'insert', rows, () => store(side, indexed, documents));
  record(kase, side.name, 'insert: WAL bytes', ((await walBytes()) - before) / rows);
  await client.query('vacuum analyze row_format.c');
  const size = await query(`select pg_table_size('row_format.c') as heap, pg_indexes_size('row_format.c') as indexes`);
  record(kase, side.name, 'heap bytes a row', Number(size.heap) / rows);
  record(kase, side.name, 'index bytes a row', Number(size.indexes) / rows);
  for (const field of indexed.slice(0, 2)) await read(side, kase, field, documents);
  const sameKeys = values.slice(0, rows / 2).map((value) => prepare({ ...value, note: 'changed', tags: ['x'] }));
  await measure(kase, side.name, 'update, same keys', rows / 2, () => store(side, indexed, sameKeys));
  await client.query('select pg_stat_force_next_flush()');
  const { hot } = await query(`select pg_stat_get_tuples_hot_updated('row_format.c'::regclass) as hot`);
  record(kase, side.name, 'update, same keys: % HOT', Number(hot) / (rows / 200));
  const newKeys = values.slice(rows / 2).map(({ id }, i) => prepare({ ...document(i, rows, large, random), id }));
  await measure(kase, side.name, 'update, new keys', rows / 2, () => store(side, indexed, newKeys));
}

// One more index on a collection with three indexes and 100,000 documents. Node fills its side column.
async function measureAddedIndex(side, filler, seed) {
  const [indexed, field, rows, random] = [fields.slice(0, 3), fields[3], 100000, randomFrom(seed)];
  const [kase, label] = ['one more index', `${side.name} ${filler}`.trim()];
  await createTable(side, indexed);
  const documents = Array.from({ length: rows }, (_, i) => prepare(document(i, rows, false, random)));
  await store(side, indexed, documents);
  await client.query('vacuum analyze row_format.c');
  const [column] = side.columns(field);
  if (column) await client.query(`alter table row_format.c add column ${column[0]} ${column[1]}`);
  const type = column?.[1].replace(' collate "C"', '');
  const next = 'select id, version, body from row_format.c where id > $1 order by id limit 1000';
  const inNode = `update row_format.c set k_3 = given.k from unnest($1::text[], $2::bigint[], $3::${type}[])
    as given (id, version, k) where c.id = given.id and c.version = given.version`;
  const fillInNode = async (after) => {
    const { rows: part } = await client.query({ name: 'next', text: next, values: [after] });
    const keys = part.map(({ body }) => column[2](keyOf(field, JSON.parse(body)), field));
    const values = [part.map(({ id }) => id), part.map(({ version }) => version), keys];
    await client.query({ name: `in Node ${side.name}`, text: inNode, values });
    return part.at(-1)?.id ?? null;
  };
  if (filler)
    await measure(kase, label, 'backfill', rows, async () => {
      for (let after = '', batch = 1; after !== null; batch++) {
        after = await fillInNode(after);
        if (filler.endsWith('vacuum') && batch % 10 === 0) await client.query('vacuum row_format.c');
      }
    });
  const create = `create index concurrently on row_format.c (${side.keys(field).join(', ')}, id)`;
  await measure(kase, label, 'create index', rows, () => client.query(create));
  await measure(kase, label, 'analyze', rows, () => client.query('analyze row_format.c'));
  const { mb } = await query(`select pg_total_relation_size('row_format.c') / 1e6 as mb`);
  record(kase, label, 'table and indexes, MB', mb);
}

await client.query(`
  set jit = off; set plan_cache_mode = force_generic_plan; set client_min_messages = warning;
  drop schema if exists row_format cascade;
  create schema row_format;
  create function row_format.key(v jsonb) returns jsonb immutable strict parallel safe language plpgsql as $$
  begin
    case jsonb_typeof(v)
      when 'number', 'boolean' then return v;
      when 'string' then return case when pg_column_size(v) < 256 then v else to_jsonb(left(v #>> '{}', 64)) end;
      else return null;
    end case;
  end $$`);
const ways = ['A ', 'B Node', 'B Node, vacuum', 'C Node'].map((way) => way.split(/ (.*)/));
try {
  for (let round = 0; round < rounds; round++) {
    const turned = (list) => list.map((_, i) => list[(i + round) % list.length]);
    if (options.add === 'only')
      for (const [name, filler] of turned(ways)) await measureAddedIndex(sides[name], filler, round + 1);
    else
      for (const large of [false, true])
        for (const count of counts)
          for (const side of turned(measured)) await measureSide(side, large, count, round + 1);
  }
  const median = (list) => Number([...list].sort((a, b) => a - b)[Math.floor(list.length / 2)]);
  for (const [measurement, bySide] of samples) {
    const base = median(bySide.get('B') ?? bySide.get('B Node') ?? [...bySide.values()][0]);
    const cell = ([side, list]) => `${side} ${median(list).toFixed(1)} (${(median(list) / base).toFixed(2)})`;
    console.log([measurement, ...[...bySide].sort().map(cell)].join(' | '));
  }
} finally {
  await client.query('drop schema row_format cascade');
  await client.end();
}
