import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { newApp, send, type TestApp } from '../support/granary';
import { CommandPlace, cuttingProxy, interrupted, rowsOf, withRows } from './cli-interruption';

const place = CommandPlace.ofSuite();

describe('a whole app', () => {
  /** With all that can be moved, and documents that do not fit schemas which came after them. */
  async function source(): Promise<TestApp> {
    const app = await newApp(place.granary);
    const path = `/api/apps/${app.appId}`;
    const make = async (method: string, rest: string, body: string | object, headers?: Record<string, string>) => {
      const { status, text: answer } = await app.call(method, rest, body, headers);
      if (status >= 300) throw new Error(`${method} ${rest}: ${status} ${answer}`);
    };
    const price = { pricing_model: 'per_access', price_per_access_tia: 0.25 };
    await make('POST', `${path}/collections`, { name: 'plain', namespace: 'ns', read_price_config: price });
    const documents = '{"id":"a","n":1.50},{"id":"b","n":2e0,"t":"  sp\\u0061ced"},{"id":"c","n":12345678901234567890}';
    await make('POST', '/store', `{"root":"${app.appId}::plain","data":[${documents},{"id":"gone","deleted":true}]}`);
    await make('POST', `${path}/collections/plain/retention`, { retention_days: 30 });
    await app.store('Books', [
      { id: 'x', year: 'no number' },
      { id: 'y', year: 1900, by: { id: 'a' } },
    ]);
    const fields =
      '{"year":{"type":"number","index":true},"isbn":{"type":"string","unique":true,"required":true},' +
      '"price":{"type":"number","default":1.50}}';
    const schema = `{"force":true,"access_policy":{"read":"private"},"schema_definition":{"fields":${fields}}}`;
    await make('PUT', `${path}/collections/Books`, schema);
    await app.store('Books', [{ id: 'z', isbn: 'i1' }]);
    await make('POST', `${path}/collections`, { name: 'books', write_pricing: 'on' });
    const indexes = [
      {
        name: 'pair',
        collection: 'Books',
        index_type: 'composite',
        fields: ['year', 'isbn'],
        options: { unique: true },
      },
      { name: 'words', collection: 'plain', index_type: 'fulltext', field_name: 't', options: { language: 'english' } },
      { name: 'a/é b', collection: 'plain', index_type: 'price', field_name: 'n', read_price_config: price },
    ];
    for (const index of indexes) await make('POST', `${path}/indexes`, index);
    const relation = {
      parent_collection: 'plain',
      parent_field: 'id',
      child_collection: 'Books',
      child_field: 'by.id',
    };
    await make('POST', `${path}/relations`, relation);
    await make('PUT', `${path}/datasets/blocked`, '{"values":["a",1.50,null,12345678901234567890]}');
    const views = [
      {
        name: 'by_year',
        source_collections: ['Books'],
        query: { group_by: 'year', aggregate: { n: { $count: '*' } } },
      },
      { name: 'listed', source_collections: ['plain'], query: { find: { id: { inDataset: 'blocked' } } } },
      { name: 'live', source_collections: ['plain'], query: { select: ['id'] }, refresh_mode: 'live', changes: true },
    ];
    for (const view of views) await make('POST', `${path}/views`, view);
    for (const version of [undefined, '2', '10']) {
      const query = { name: 'q', version, source_collection: 'plain', base_query: { limit: 5 }, description: version };
      await make('POST', `${path}/queries`, query);
    }
    await make('PUT', `/api/skills/${app.appId}/skills.md`, { markdown: '# Mine\n\nText' });
    return app;
  }

  /** The files of an export but the manifest, by their paths. */
  async function filesOf(name: string): Promise<Record<string, string>> {
    const entries = await readdir(join(place.folder, name), { recursive: true, withFileTypes: true });
    const files = entries.filter((entry) => entry.isFile() && entry.name !== 'manifest.json');
    const paths = files.map((file) => join(file.parentPath, file.name));
    const texts = await Promise.all(paths.map((path) => readFile(path, 'utf8')));
    return Object.fromEntries(paths.map((path, index) => [path.slice(join(place.folder, name).length), texts[index]!]));
  }

  test('is the same in another app, and exported from there byte for byte', async () => {
    const app = await source();
    const exported = await place.run(app, ['export', '--all', '--out', 'first']);
    expect(exported).toMatchObject({ code: 0, stderr: '' });
    const report = JSON.parse(exported.stdout) as { left_out: string[] };
    expect(report).toMatchObject({ app: app.appId, collections: 3, documents: 7, files: 0 });
    expect(report.left_out.join(' ')).not.toContain('iles');
    const target = await newApp(place.granary);
    const imported = await place.run(target, ['import', '--all', 'first']);
    expect(imported).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(imported.stdout)).toMatchObject({ from: app.appId, documents: 7, views: 3, queries: 3 });
    expect((await place.run(target, ['export', '--all', '--out', 'second'])).code).toBe(0);
    expect(await filesOf('second')).toEqual(await filesOf('first'));
    expect(Object.values(await filesOf('first')).join('')).not.toContain(app.key);
    for (const view of ['by_year', 'listed', 'live']) {
      const rowsIn = async ({ appId, key }: TestApp) =>
        (await send(place.granary.url, 'GET', `/api/views/${appId}/${view}/data?sort=id`, { key })).body['records'];
      expect(await rowsIn(target)).toEqual(await rowsIn(app));
    }
    const again = await place.run(target, ['import', '--all', 'first']);
    expect(again).toMatchObject({ code: 2, stdout: '' });
    expect(again.stderr).toContain('--merge');
  });

  test('goes on where it was interrupted, with the documents of one height', async () => {
    const app = await withRows(place.granary, 6_000);
    await app.store('aside', [{ id: 'a' }]);
    const leaving = await cuttingProxy(place.granary, { received: 60_000 });
    const coming = await cuttingProxy(place.granary, { sent: 60_000 });
    try {
      const command = ['export', '--all', '--out', 'all'];
      const exporting = await interrupted(place, app, command, leaving);
      expect(exporting.code).toBe(130);
      expect(exporting.stderr).toContain('granary export --all --out all');
      expect(await readdir(join(place.folder, 'all'))).not.toContain('manifest.json');
      const early = await place.run(await newApp(place.granary), ['import', '--all', 'all']);
      expect(early.stderr).toContain('it has no manifest.json');
      await app.store('aside', [{ id: 'later' }]);
      leaving.heal();
      expect(JSON.parse((await place.run(app, command, leaving.url)).stdout)).toMatchObject({
        height: 3,
        documents: 6_001,
      });
      expect(await place.text('all/documents/rows.ndjson')).toBe(
        await rowsOf(place.granary, app, 'deleted=include&at=3'),
      );
      const target = await newApp(place.granary);
      const importing = await interrupted(place, target, ['import', '--all', 'all'], coming);
      expect(importing.code).toBe(130);
      expect(importing.stderr).toContain('granary import --all all');
      coming.heal();
      expect((await place.run(target, ['import', '--all', 'all'], coming.url)).code).toBe(0);
      const versions = await rowsOf(place.granary, target, 'deleted=include&history=true&select=id');
      expect(versions.trim().split('\n')).toHaveLength(6_000);
    } finally {
      leaving.stop();
      coming.stop();
    }
  });

  test('is not imported from files that were damaged, and nothing is changed', async () => {
    const app = await withRows(place.granary, 10);
    await place.run(app, ['export', '--all', '--out', 'all']);
    const file = join(place.folder, 'all/documents/rows.ndjson');
    await writeFile(file, (await readFile(file, 'utf8')).replace('plain', 'Plain'));
    const target = await newApp(place.granary);
    const refused = await place.run(target, ['import', '--all', 'all']);
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toContain('rows.ndjson is not the file that manifest.json names');
    expect((await target.call('GET', `/api/apps/${target.appId}/collections`)).text).toBe('[]');
  });

  test('is merged into an app that has something in it, whose definitions stay', async () => {
    const app = await withRows(place.granary, 10);
    await place.run(app, ['export', '--all', '--out', 'all']);
    const target = await newApp(place.granary);
    await target.call('POST', `/api/apps/${target.appId}/collections`, {
      name: 'rows',
      access_policy: { read: 'private' },
    });
    await target.store('rows', [{ id: 'd000001', n: 'before' }, { id: 'mine' }]);
    const merged = await place.run(target, ['import', '--all', 'all', '--merge']);
    expect(merged.code).toBe(0);
    expect((JSON.parse(merged.stdout) as { kept: string[] }).kept).toContain(
      'The collection "rows" was there already.',
    );
    const { body } = await target.call('GET', `/api/apps/${target.appId}/collections/rows`);
    expect(body).toMatchObject({ document_count: 10, access_policy: { read: 'private' } });
    expect(await rowsOf(place.granary, target, 'find={"id":{"in":["d000001","mine"]}}')).toBe(
      '{"id":"d000001","n":1.5}\n{"id":"mine"}\n',
    );
  });

  test('is not exported into a folder that has something else in it', async () => {
    await mkdir(join(place.folder, 'mine'));
    await writeFile(join(place.folder, 'mine/file'), 'x');
    const app = await newApp(place.granary);
    for (const more of [[], ['--restart']]) {
      const refused = await place.run(app, ['export', '--all', '--out', 'mine', ...more]);
      expect(refused).toMatchObject({ code: 2, stdout: '' });
    }
    expect(await readdir(join(place.folder, 'mine'))).toEqual(['file']);
  });
});
