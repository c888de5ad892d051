import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import pg from 'pg';
import { serve } from '../child';
import { documentSizeBytes, writeDocument } from '../documents';

/**
 * A filter that no index serves, as an expert writes it for one application: jsonb, one prepared statement. `stop` may
 * come before `start` has set these.
 */
let pool: pg.Pool;
let server: Server;

const batchSize = 5_000;
const statement = {
  name: 'scan',
  text: `select '[' || string_agg(q.body::text, ',' order by q.id) || ']' as records from (
    select d.id, d.body from documents d where (d.body->>'score')::numeric >= $1 order by d.id limit 100) q`,
};

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { rows } = await pool.query<{ records: string }>({ ...statement, values: [request.url!.split('?')[1]] });
  const bytes = Buffer.from(`{"records":${rows[0]!.records}}`);
  response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': bytes.length }).end(bytes);
}

const calls = {
  start: async ({ databaseUrl }: { databaseUrl: string }) => {
    pool = new pg.Pool({ connectionString: databaseUrl });
    await pool.query('create table documents (id text primary key, body jsonb not null)');
    server = createServer((request, response) => void answer(request, response));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return { port: (server.address() as AddressInfo).port };
  },
  fill: async ({ count }: { count: number }) => {
    const buffer = Buffer.alloc(documentSizeBytes);
    for (let from = 0; from < count; from += batchSize) {
      const texts = Array.from({ length: batchSize }, (_, index) => {
        writeDocument(buffer, 0, from + index);
        return buffer.toString('latin1');
      });
      await pool.query(`insert into documents select e->>'id', e from unnest($1::jsonb[]) e`, [texts]);
    }
  },
  stop: async () => {
    server?.close();
    await pool?.end();
  },
};

export type ExpertScanCalls = typeof calls;

serve(calls);
