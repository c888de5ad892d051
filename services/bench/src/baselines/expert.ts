import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import pg from 'pg';
import { serve } from '../child';

/**
 * Joins as an expert writes them by hand for one application: jsonb, an index for each reference, correlated
 * subqueries, one prepared statement, its text passed through by node:http. `stop` may come before `start` has set
 * these.
 */
let pool: pg.Pool;
let server: Server;

const tables = ['posts', 'people', 'comments', 'teams', 'cities'];
const indexes = `
  create index on posts ((body->>'category'), id);
  create index on comments ((body->>'post'), id)`;

const one = `
  select p.body || jsonb_build_object('writer', (select u.body from people u where u.id = p.body->>'author')) as body, p.id
  from posts p where p.body->>'category' = $1 order by p.id limit 100`;
const four = `
  select p.body || jsonb_build_object('comments', coalesce((
    select jsonb_agg(c.body || jsonb_build_object('writer', (
      select u.body || jsonb_build_object('group', (
        select t.body || jsonb_build_object('place', (select i.body from cities i where i.id = t.body->>'city'))
        from teams t where t.id = u.body->>'team'))
      from people u where u.id = c.body->>'by')) order by c.id)
    from comments c where c.body->>'post' = p.id), '[]')) as body, p.id
  from posts p where p.body->>'category' = $1 order by p.id limit 100`;
const statements = Object.fromEntries(
  Object.entries({ one, four }).map(([name, text]) => [
    `/${name}`,
    { name, text: `select '[' || string_agg(q.body::text, ',' order by q.id) || ']' as records from (${text}) q` },
  ]),
);

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { rows } = await pool.query<{ records: string }>({ ...statements[request.url!]!, values: ['c7'] });
  const bytes = Buffer.from(`{"records":${rows[0]!.records}}`);
  response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': bytes.length }).end(bytes);
}

const calls = {
  start: async ({ databaseUrl }: { databaseUrl: string }) => {
    pool = new pg.Pool({ connectionString: databaseUrl });
    for (const table of tables) await pool.query(`create table ${table} (id text primary key, body jsonb not null)`);
    await pool.query(indexes);
    server = createServer((request, response) => void answer(request, response));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return { port: (server.address() as AddressInfo).port };
  },
  store: async ({ table, documents }: { table: string; documents: object[] }) => {
    const statement = `insert into ${table} select e->>'id', e from jsonb_array_elements($1::jsonb) e`;
    await pool.query(statement, [JSON.stringify(documents)]);
  },
  stop: async () => {
    server?.close();
    await pool?.end();
  },
};

export type ExpertCalls = typeof calls;

serve(calls);
