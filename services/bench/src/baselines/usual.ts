import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import express, { type Express } from 'express';
import pg from 'pg';
import { serve } from '../child';
import { receiveFile } from './files';

/**
 * A service as commonly written: express, `pg` with its default pool, a jsonb column with expression indexes, rows
 * parsed by pg and serialised by `res.json`. No validation, no keys, no history. `stop` may come before `start` has set
 * these.
 */
let pool: pg.Pool;
let server: Server;

const schema = (table: string) => `
  create table ${table} (id text primary key, body jsonb not null);
  create index on ${table} ((body->>'owner'));
  create index on ${table} ((body->>'category'), ((body->>'score')::numeric));
  create index on ${table} (((body->>'views')::numeric))`;

function createApp(directory: string): Express {
  const app = express();
  app.use(express.json({ limit: '5mb' }));

  app.post('/files', async (request, response) => {
    const { id, sizeBytes } = await receiveFile(directory, request);
    await pool.query('insert into files (id, size_bytes) values ($1, $2)', [id, sizeBytes]);
    response.status(202).json({ id });
  });

  app.get('/:table/count', async ({ params: { table } }, response) => {
    const { rows } = await pool.query<{ count: number }>(`select count(*)::int as count from ${table}`);
    response.json({ count: rows[0]!.count });
  });

  app.get('/:table', async ({ params: { table }, query }, response) => {
    const { rows } =
      query.owner === undefined
        ? await pool.query<{ body: object }>(
            `select body from ${table} where body->>'category' = $1 order by (body->>'score')::numeric desc limit $2`,
            [query.category, Number(query.limit)],
          )
        : await pool.query<{ body: object }>(`select body from ${table} where body->>'owner' = $1 limit 100`, [
            query.owner,
          ]);
    response.json({ records: rows.map((row) => row.body) });
  });

  app.post('/:table', async (request, response) => {
    const { table } = request.params;
    const body = request.body as { id: string };
    await pool.query(`insert into ${table} (id, body) values ($1, $2)`, [body.id, body]);
    response.status(202).json({ stored: 1 });
  });

  app.post('/:table/bulk', async (request, response) => {
    const { table } = request.params;
    const body = request.body as object[];
    const statement = `insert into ${table} (id, body) select e->>'id', e from jsonb_array_elements($1::jsonb) e`;
    await pool.query(statement, [JSON.stringify(body)]);
    response.status(202).json({ stored: body.length });
  });
  return app;
}

const calls = {
  start: async ({ databaseUrl, directory }: { databaseUrl: string; directory: string }) => {
    pool = new pg.Pool({ connectionString: databaseUrl });
    for (const table of ['documents', 'writes']) await pool.query(schema(table));
    await pool.query('create table files (id uuid primary key, size_bytes int)');
    await new Promise<void>((resolve) => {
      server = createApp(directory).listen(0, '127.0.0.1', () => resolve());
    });
    return { port: (server.address() as AddressInfo).port };
  },
  stop: async () => {
    server?.closeAllConnections();
    server?.close();
    await pool?.end();
  },
};

export type UsualCalls = typeof calls;

serve(calls);
