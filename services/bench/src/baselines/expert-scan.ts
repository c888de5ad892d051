import { createServer } from 'node:http';
import pg from 'pg';
import { serve } from '../child.mjs';
import { documentSizeBytes, writeDocument } from '../documents.mjs';

/** A filter that no index serves, as an expert writes it for one application: jsonb, one prepared statement. */
let pool;
let server;

const batchSize = 5_000;
const statement = {
  name: 'scan',
  text: `select '[' || string_agg(q.body::text, ',' order by q.id) || ']' as records from (
    select d.id, d.body from documents d where (d.body->>'score')::numeric >= $1 order by d.id limit 100) q`,
};

serve({
  start: async ({ databaseUrl }) => {
    pool = new pg.Pool({ connectionString: databaseUrl });
    await pool.query('create table documents (id text primary key, body jsonb not null)');
    server = createServer(async (request, response) => {
      const { rows } = await pool.query({ ...statement, values: [request.url.split('?')[1]] });
      const bytes = Buffer.from(`{"records":${rows[0].records}}`);
      response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': bytes.length }).end(bytes);
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    return { port: server.address().port };
  },
  fill: async ({ count }) => {
    const buffer = Buffer.alloc(documentSizeBytes);
    for (let from = 0; from < count; from += batchSize) {
      const texts = Array.from({ length: batchSize }, (_, at) => {
        writeDocument(buffer, 0, from + at);
        return buffer.toString('latin1');
      });
      await pool.query(`insert into documents select e->>'id', e from unnest($1::jsonb[]) e`, [texts]);
    }
  },
  stop: async () => {
    server?.close();
    await pool?.end();
  },
});
