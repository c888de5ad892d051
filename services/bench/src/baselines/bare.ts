import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import pg from 'pg';
import { serve } from '../child';
import { broadcast, follow } from './broadcast';
import { receiveFile } from './files';

/**
 * The minimal Node service over Postgres: `node:http` and `pg`, prepared statements, bodies stored as text beside typed
 * columns, rows joined as text. No validation, no keys, no history. `stop` may come before `start` has set these.
 */
let readers: pg.Pool;
// Commits that wait for the disk together share its flush, so writers need more connections than readers.
let writers: pg.Pool;
let server: Server;
let directory: string;

/** The path of a feed, with the categories that it is told. */
const feedPath = '/writes/feed';
const columns = 'id, owner, category, score, views, body';
const schema = (table: string) => `
  create table ${table} (
    id text collate "C" primary key, owner text collate "C", category text collate "C", score int, views int,
    body text not null);
  create index on ${table} (owner);
  create index on ${table} (category, score);
  create index on ${table} (views)`;

interface Answer {
  text: string;
  /** Called once the answer has been sent. */
  onSent?: () => void;
}

async function readDocuments(table: string, query: URLSearchParams): Promise<string> {
  const owner = query.get('owner');
  const statement =
    owner === null
      ? {
          name: `page_${table}`,
          text: `select body from ${table} where category = $1 order by score desc limit $2`,
          values: [query.get('category'), query.get('limit')],
        }
      : {
          name: `point_${table}`,
          text: `select body from ${table} where owner = $1 limit 100`,
          values: [owner],
        };
  const { rows } = await readers.query<[string]>({ ...statement, rowMode: 'array' });
  return `{"records":[${rows.join(',')}]}`;
}

async function insertOne(table: string, text: string): Promise<Answer> {
  const document = JSON.parse(text) as Record<string, unknown>;
  const { id, owner, category, score, views } = document;
  await writers.query({
    name: `insert_${table}`,
    text: `insert into ${table} (${columns}) values ($1, $2, $3, $4, $5, $6)`,
    values: [id, owner, category, score, views, text],
  });
  return { text: '{"stored":1}', onSent: () => broadcast(table, document, text) };
}

async function insertMany(table: string, text: string): Promise<string> {
  const { rowCount } = await writers.query({
    name: `bulk_${table}`,
    text: `insert into ${table} (${columns})
           select fields.*, document::text from json_array_elements($1::json) document,
             json_to_record(document) as fields(id text, owner text, category text, score int, views int)`,
    values: [text],
  });
  return `{"stored":${rowCount}}`;
}

async function insertFile(request: IncomingMessage): Promise<string> {
  const file = await receiveFile(directory, request);
  await writers.query({
    name: 'insert_file',
    text: 'insert into files (id, size_bytes) values ($1, $2)',
    values: [file.id, file.sizeBytes],
  });
  return `{"id":"${file.id}"}`;
}

async function countDocuments(table: string): Promise<string> {
  const { rows } = await readers.query<{ count: number }>(`select count(*)::int as count from ${table}`);
  return `{"count":${rows[0]!.count}}`;
}

async function answer(request: IncomingMessage, { pathname, searchParams }: URL): Promise<Answer> {
  const [, table = '', action] = pathname.split('/');
  if (table === 'files') {
    return { text: await (request.method === 'POST' ? insertFile(request) : countDocuments(table)) };
  }
  if (request.method === 'GET') {
    return { text: await (action === 'count' ? countDocuments(table) : readDocuments(table, searchParams)) };
  }
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString();
  return action === 'bulk' ? { text: await insertMany(table, text) } : insertOne(table, text);
}

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url!, 'http://localhost');
  if (url.pathname === feedPath) return follow(response, url.searchParams.getAll('category'));
  let status = request.method === 'POST' ? 202 : 200;
  const { text, onSent } = await answer(request, url).catch((error: Error): Answer => {
    status = 500;
    return { text: JSON.stringify({ error: error.message }) };
  });
  const body = Buffer.from(text);
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': body.length }).end(body);
  onSent?.();
}

const calls = {
  start: async (options: { databaseUrl: string; directory: string }) => {
    ({ directory } = options);
    readers = new pg.Pool({ connectionString: options.databaseUrl, max: 4 });
    writers = new pg.Pool({ connectionString: options.databaseUrl, max: 16 });
    for (const table of ['documents', 'writes']) await writers.query(schema(table));
    await writers.query('create table files (id uuid primary key, size_bytes int)');
    server = createServer((request, response) => void handle(request, response));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return { port: (server.address() as AddressInfo).port };
  },
  stop: async () => {
    server?.closeAllConnections();
    server?.close();
    await readers?.end();
    await writers?.end();
  },
};

export type BareCalls = typeof calls;

serve(calls);
