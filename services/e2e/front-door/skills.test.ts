import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

describe.each(transports)('the skills document (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
    const path = `/api/apps/${app.appId}`;
    const create = async (to: string, body: object) =>
      expect((await app.call('POST', `${path}/${to}`, body)).status).toBeLessThan(300);
    for (const read of ['private', 'public']) {
      await create('collections', { name: `${read}_birds`, access_policy: { read } });
      await create('indexes', {
        name: `by_${read}`,
        collection: `${read}_birds`,
        field_name: `${read}_wingspan`,
        index_type: 'number',
      });
      await create('views', {
        name: `${read}_view`,
        query: { select: ['kind'] },
        source_collections: ['private_birds'],
        access_policy: { read },
        variables: { [`${read}_variable`]: 'kind' },
      });
    }
  });
  afterAll(() => granary.stop());

  const read = async (key?: string) => {
    const { status, text } = await send(granary.url, 'GET', `/api/skills/${app.appId}/skills.md`, { key });
    expect(status).toBe(200);
    return text;
  };

  test('describes private collections, their fields and private views to a key with Read only', async () => {
    const secrets = ['private_birds', 'private_wingspan', 'private_view', 'private_variable'];
    const shown = ['public_birds', 'public_wingspan', 'public_view', 'public_variable'];
    const all = await read(app.key);
    for (const name of [...secrets, ...shown]) expect(all).toContain(name);
    const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, {
      name: 'writer',
      permissions: ['Write'],
    });
    const neighbour = await newApp(granary);
    for (const key of [undefined, made.body.app_key, neighbour.key]) {
      const text = await read(key);
      for (const name of shown) expect(text).toContain(name);
      for (const name of secrets) expect(text).not.toContain(name);
      expect(text).not.toContain('private)');
    }
  });

  test('states prices, and follows a change of one at once', async () => {
    const priced = await newApp(granary);
    const text = async () => (await send(granary.url, 'GET', `/api/skills/${priced.appId}/skills.md`)).text;
    const index = (read_price_config: object) =>
      priced.call('POST', `/api/apps/${priced.appId}/indexes`, {
        name: 'by_kind',
        collection: 'birds',
        field_name: 'kind',
        index_type: 'string',
        read_price_config,
      });
    await index({});
    expect(await text()).not.toMatch(/TIA|X-Agent-Key/);
    await index({ pricing_model: 'per_access', price_per_access_tia: 0.25 });
    expect(await text()).toMatch(/X-Agent-Key[^]*\n- `kind` \(string\), 0\.25 TIA for each read\n/);
    const read_price_config = { pricing_model: 'per_kb', price_per_kb_utia: 1 };
    await priced.call('PUT', `/api/apps/${priced.appId}/collections/birds`, { read_price_config });
    await priced.call('POST', `/apps/${priced.appId}/queries`, {
      name: 'all',
      source_collection: 'birds',
      base_query: {},
      read_price_config: { pricing_model: 'per_access', price_per_access_utia: 0 },
    });
    expect(await text()).toMatch(
      /### birds\n\nPrice: 0\.000001 TIA for each KB of the answer\.[^]*### all\n\nPrice: free\./,
    );
    await index({});
    expect(await text()).not.toContain('for each read');
  });

  test('has examples of export, import and feed that do what it says', async () => {
    const own = await newApp(granary);
    const { appId, key } = own;
    expect((await own.call('POST', `/api/apps/${appId}/collections`, { name: 'birds' })).status).toBe(201);
    const { text } = await send(granary.url, 'GET', `/api/skills/${appId}/skills.md`);
    const base = /^App `\S+` at (\S+?)\.? /m.exec(text)![1]!;
    const folder = await mkdtemp(join(tmpdir(), 'granary-skills-'));
    try {
      await writeFile(join(folder, 'documents.ndjson'), '{"id":"a"}\n{"id":"b"}\n');
      const run = async (path: string) => {
        const [, example] = new RegExp(`\`\`\`sh\\n(curl [^\`]*${path}[^\`]*)\\n\`\`\``).exec(text)!;
        const env = { ...process.env, APP_KEY: key };
        const line = example!.replaceAll(base, granary.url);
        return (await promisify(execFile)('bash', ['-c', line], { cwd: folder, env })).stdout;
      };
      expect(JSON.parse(await run('/import'))).toMatchObject({ status: 'completed', written: 2 });
      expect(await run('/export')).toBe('{"id":"a"}\n{"id":"b"}\n');
      const { changes } = JSON.parse(await run('/changes')) as { changes: Array<{ id: string }> };
      expect(changes.map(({ id }) => id)).toEqual(['a', 'b']);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test('follows a change of what is private at once', async () => {
    const set = (access: string) =>
      app.call('PUT', `/api/apps/${app.appId}/collections/public_birds`, { access_policy: { read: access } });
    await set('private');
    expect(await read()).not.toContain('public_birds');
    expect(await read(app.key)).toContain('### public_birds (private)');
    await set('public');
    expect(await read()).toContain('### public_birds');
  });
});
