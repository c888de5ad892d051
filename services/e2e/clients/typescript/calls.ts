// Compiled and run by typescript.test.ts beside `api.ts`, which openapi-typescript makes of the document.
import createClient from 'openapi-fetch';
import type { components, paths } from './api.js';

const [url, appId, key] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({
  baseUrl: url,
  headers: { 'X-App-Key': key },
  // The free parameters of a read are an object, whose members become parameters of the URL.
  querySerializer: { object: { style: 'form', explode: true } },
});
const app = { app_id: appId };
const films = { ...app, collection: 'films' };
let calls = 0;

/** The data of an answer; an error ends the program. */
async function data<T>(answer: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await answer;
  calls++;
  if (data === undefined) throw new Error(`${response.url}: ${response.status} ${JSON.stringify(error)}`);
  return data;
}

function expect(actual: unknown, expected: unknown): void {
  const [one, other] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (one !== other) throw new Error(`after ${calls} calls: ${one} instead of ${other}`);
}

const ids = ({ records }: components['schemas']['Records']): unknown[] => records.map(({ id }) => id);

async function documents(): Promise<void> {
  const documents = [1, 2, 3, 4, 5].map((n) => ({ id: `f${n}`, title: `Film ${n}`, rating: n }));
  const stored = await data(client.POST('/store', { body: { root: `${appId}::films`, data: documents } }));
  expect(stored.results.length, 5);
  const query = { root: `${appId}::films`, find: { rating: { gte: 2 } }, sort: ['-rating'], limit: 2 };
  const first = await data(client.POST('/list', { body: query }));
  expect([ids(first), first.total], [['f5', 'f4'], 4]);
  const second = await data(client.POST('/list', { body: { ...query, cursor: first.next_cursor ?? null } }));
  expect(ids(second), ['f3', 'f2']);
  const body = { name: 'by_rating', collection: 'films', field_name: 'rating', index_type: 'number' as const };
  const index = await data(client.POST('/api/apps/{app_id}/indexes', { params: { path: app }, body }));
  expect(index.index_type, 'number');
}

async function publicReads(): Promise<void> {
  const path = '/api/apps/{app_id}/collections/{collection}/data';
  const one = await data(client.GET(path, { params: { path: films, query: { filters: { rating: 3 } } } }));
  expect(ids(one), ['f3']);
  const query = { filters: { 'rating.$gte': 2 }, sort: '-rating', limit: 3, select: 'id' };
  const page = await data(client.GET(path, { params: { path: films, query } }));
  expect([page.records, page.limit], [[{ id: 'f5' }, { id: 'f4' }, { id: 'f3' }], 3]);
  const offset = await data(client.GET(path, { params: { path: films, query: { ...query, offset: 3 } } }));
  expect([ids(offset), offset.page], [['f2'], 2]);
  const cursor = { ...query, cursor: page.next_cursor! };
  expect(ids(await data(client.GET(path, { params: { path: films, query: cursor } }))), ['f2']);
  const refused = await client.GET(path, { params: { path: films, query: { filters: { title: 'Film 1' } } } });
  calls++;
  expect([refused.response.status, refused.error?.code === 'FIELD_NOT_INDEXED'], [400, true]);
  // @ts-expect-error a limit is a number
  void (() => client.GET(path, { params: { path: films, query: { limit: 'all' } } }));
  // @ts-expect-error the codes are known
  void (() => refused.error?.code === 'NO_SUCH_CODE');
}

async function viewsAndQueries(): Promise<void> {
  const view = {
    name: 'ratings',
    source_collections: ['films'],
    query: { group_by: 'rating', aggregate: { films: { $count: '*' } } },
    variables: { rating: 'rating' },
  };
  const { ticket_id } = await data(client.POST('/apps/{app_id}/views', { params: { path: app }, body: view }));
  const deadline = Date.now() + 60_000;
  for (;;) {
    const task = await data(client.GET('/api/tasks/{ticket_id}', { params: { path: { ticket_id } } }));
    if (task.status === 'Completed') break;
    if (Date.now() > deadline) throw new Error('the view is not built in time');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const path = { ...app, view_name: 'ratings' };
  const read = (query: NonNullable<paths['/api/views/{app_id}/{view_name}/data']['get']['parameters']['query']>) =>
    data(client.GET('/api/views/{app_id}/{view_name}/data', { params: { path, query } }));
  expect((await read({ variables: { rating: 4 } })).records, [{ rating: 4, films: 1 }]);
  const filtered = await read({ filter: '{"rating":{"lt":3}}', sort: '-rating', limit: 1, offset: 1 });
  expect([filtered.records, filtered.total, filtered.refresh_mode], [[{ rating: 1, films: 1 }], 2, 'lazy']);
  const query = {
    name: 'rated',
    source_collection: 'films',
    base_query: { select: ['title'], sort: ['-rating'] },
    parameters: [{ name: 'least', field_path: 'rating.$gte', required: true }],
  };
  await data(client.POST('/apps/{app_id}/queries', { params: { path: app }, body: query }));
  const run = { path: { ...app, query_name: 'rated' }, query: { parameters: { least: 4 }, limit: 1, offset: 1 } };
  const found = await data(client.GET('/api/queries/{app_id}/{query_name}/data', { params: run }));
  expect([found.records, found.total], [[{ title: 'Film 4' }], 2]);
}

async function blobs(): Promise<void> {
  const path = { ...app, collection: 'files' };
  const form = await data(
    client.POST('/api/apps/{app_id}/blobs/{collection}', {
      params: { path },
      body: { blob: 'in a form', metadata: '{"kind":"form"}' },
      bodySerializer: (body) => {
        const parts = new FormData();
        if (typeof body !== 'string')
          for (const [name, part] of Object.entries(body)) parts.set(name, new Blob([part]));
        return parts;
      },
    }),
  );
  const raw = await data(
    client.POST('/api/apps/{app_id}/blobs/{collection}', {
      params: { path, header: { 'X-Blob-Metadata': '{"kind":"raw"}', 'Idempotency-Key': 'once' } },
      headers: { 'Content-Type': 'application/octet-stream' },
      body: 'as it is',
      bodySerializer: (body) => body,
    }),
  );
  for (const [blob, text] of [
    [form, 'in a form'],
    [raw, 'as it is'],
  ] as const) {
    const target = { params: { path: { ...path, blob_id: blob.blob_id } }, parseAs: 'text' as const };
    expect(await data(client.GET('/api/apps/{app_id}/blobs/{collection}/{blob_id}', target)), text);
  }
}

async function administration(): Promise<void> {
  const body = { access_policy: { read: 'private' as const } };
  const path = '/api/apps/{app_id}/collections/{collection}';
  const changed = await data(client.PUT(path, { params: { path: films }, body }));
  expect([changed.access_policy.read, changed.document_count], ['private', 5]);
  const settings = await data(
    client.POST('/api/apps/{app_id}/payout/settings', { params: { path: app }, body: { min_payout: 2_000_000 } }),
  );
  expect(settings.settings.min_payout, 2_000_000);
  await data(
    client.PUT('/api/skills/{app_id}/skills.md', { params: { path: app }, body: { markdown: 'Films and ratings' } }),
  );
  const skills = client.GET('/api/skills/{app_id}/skills.md', { params: { path: app }, parseAs: 'text' });
  expect((await data(skills)).includes('Films and ratings'), true);
  const gone = await data(client.DELETE(path, { params: { path: films, query: { force: true, cascade: true } } }));
  expect(gone.success, true);
}

await documents();
await publicReads();
await viewsAndQueries();
await blobs();
await administration();
console.log(`${calls} calls`);
