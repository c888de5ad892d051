import express from 'express';
import pg from 'pg';
import { serve } from '../child.mjs';
import { receiveFile } from './files.mjs';

/**
 * A service as commonly written: express, `pg` with its default pool, a jsonb column with expression indexes, rows
 * parsed by pg and serialised by `res.json`. No validation, no keys, no history.
 */
let pool;
let server;

const schema = (table) => `
  create table ${table} (id text primary key, body jsonb not null);
  create index on ${table} ((body->>'owner'));
  create index on ${table} ((body->>'category'), ((body->>'score')::numeric));
  create index on ${table} (((body->>'views')::numeric))`;

function createApp(directory) {
  const app = express();
  app.use(express.json({ limit: '5mb' }));

  app.post('/files', async (request, response) => {
    const { id, sizeBytes } = await receiveFile(directory, request);
    await pool.query('insert into files (id, size_bytes) values ($1, $2)', [id, sizeBytes]);
    response.status(202).json({ id });
  });

  app.get('/:table/count', async ({ params: { table } }, response) => {
    const { rows } = await pool.query(`select count(*)::int as count from ${table}`);
    response.json({ count: rows[0].count });
  });

  app.get('/:table', async ({ params: { table }, query }, response) => {
    const { rows } =
      query.owner === undefined
        ? await pool.query(
            `select body from ${table} where body->>'category' = $1 order by (body->>'score')::numeric desc limit $2`,
            [query.category, Number(query.limit)],
          )
        : await pool.query(`select body from ${table} where body->>'owner' = $1 limit 100`, [query.owner]);
    response.json({ records: rows.map((row) => row.body) });
  });

  app.post('/:table', async ({ params: { table }, body }, response) => {
    await pool.query(`insert into ${table} (id, body) values ($1, $2)`, [body.id, body]);
    response.status(202).json({ stored: 1 });
  });

  app.post('/:table/bulk', async ({ params: { table }, body }, response) => {
    const statement = `insert into ${table} (id, body) select e->>'id', e from jsonb_array_elements($1::jsonb) e`;
    await pool.query(statement, [JSON.stringify(body)]);
    response.status(202).json({ stored: body.length });
  });
  return app;
}

serve({
  start: async ({ databaseUrl, directory }) => {
    pool = new pg.Pool({ connectionString: databaseUrl });
    for (const table of ['documents', 'writes']) await pool.query(schema(table));
    await pool.query('create table files (id uuid primary key, size_bytes int)');
    await new Promise((resolve) => {
      server = createApp(directory).listen(0, '127.0.0.1', resolve);
    });
    return { port: server.address().port };
  },
  stop: async () => {
    server?.closeAllConnections();
    server?.close();
    await pool?.end();
  },
});
