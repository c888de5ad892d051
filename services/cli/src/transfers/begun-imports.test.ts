import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { App } from '@granary/client';
import { importApp } from './app-import.ts';
import { stateOfImport, type AppImportCall, type AppImportState } from './app-import-state.ts';
import { importFile } from './import-file.ts';
import { importDefinitionOf } from './import-request.ts';
import { folderStateOf, readState, writeState } from './state-file.ts';

const url = 'http://127.0.0.1:1';
let folder: string;
let requests: string[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'granary-import-'));
  requests = [];
});
afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

const refusal = (code: string) =>
  Object.assign(new Error(code), { name: 'GranaryError', code, status: 404, details: {} });

/** An app with a collection `a`, which has made what an import is to make, and has forgotten the import `gone`. */
const listings: Record<string, unknown> = {
  collections: [{ name: 'a' }],
  views: { views: [] },
  queries: { queries: [] },
  datasets: { datasets: [] },
};

const app = {
  id: 'demo',
  pages: async function* (path: string) {
    yield listings[path.split('/').at(-1)!];
  },
  request: (method: string, path: string) => {
    requests.push(`${method} ${path}`);
    if (path.endsWith('/gone')) return Promise.reject(refusal('IMPORT_NOT_FOUND'));
    if (path.endsWith('/stats')) return Promise.resolve({ document_count: 1, deleted_count: 0 });
    if (path.endsWith('/indexes/i')) return Promise.resolve({ status: 'failed', error: 'full' });
    return Promise.resolve({ import_id: 'new', collection: 'a', status: 'open', offset: 0 });
  },
  collection: () => ({
    import: async (source: AsyncIterable<Uint8Array>, { importId }: { importId: string }) => {
      let bytes = 0;
      for await (const chunk of source) bytes += chunk.length;
      requests.push(`${bytes} bytes to ${importId}`);
      return { import_id: importId, status: 'completed' };
    },
  }),
} as unknown as App;

const callOf = (changes: Partial<AppImportCall> = {}): AppImportCall => ({
  app,
  url,
  signal: new AbortController().signal,
  merges: false,
  withoutFiles: false,
  restarts: false,
  onProgress: () => {},
  onUnresumable: (reason) => {
    throw new Error(reason);
  },
  ...changes,
});

const begun: AppImportState = {
  version: 1,
  url,
  app: 'demo',
  manifest: 'm',
  merges: false,
  withoutFiles: false,
  files: {},
  unstoredFiles: {},
  present: [],
  done: ['collection a'],
  imports: { a: 'i1', b: 'gone' },
  problems: ['One.'],
  kept: ['Two.'],
};

describe('an import of a whole app that has begun', () => {
  beforeEach(() => writeState(folderStateOf(folder, 'import'), begun));

  test('goes on as it began, with or without --merge', async () => {
    expect(await stateOfImport(folder, 'm', callOf())).toEqual(begun);
    await expect(stateOfImport(folder, 'm', callOf({ merges: true }))).rejects.toThrow('it began without --merge');
    await writeState(folderStateOf(folder, 'import'), { ...begun, merges: true } as AppImportState);
    await expect(stateOfImport(folder, 'm', callOf())).rejects.toThrow('it began with --merge');
    const withoutFiles = stateOfImport(folder, 'm', callOf({ merges: true, withoutFiles: true }));
    await expect(withoutFiles).rejects.toThrow('it began with files');
    await expect(stateOfImport(folder, 'other', callOf())).rejects.toThrow('the folder was changed');
    expect(requests).toEqual([]);
  });

  test('takes what it has made for its own when it begins anew, and ends its imports', async () => {
    const anew = await stateOfImport(folder, 'm', callOf({ restarts: true }));
    expect(anew).toEqual({ ...begun, done: [], imports: {}, problems: [], kept: [] });
    expect(await readState(folderStateOf(folder, 'import'))).toEqual(anew);
    expect(requests).toEqual(['DELETE /api/apps/demo/imports/i1', 'DELETE /api/apps/demo/imports/gone']);
  });

  test('of another folder is none of its own', async () => {
    await expect(stateOfImport(folder, 'other', callOf({ restarts: true }))).rejects.toThrow('is not empty');
    const merged = await stateOfImport(folder, 'other', callOf({ restarts: true, merges: true }));
    expect(merged).toMatchObject({ present: ['a'], merges: true });
    expect(requests).toEqual([]);
  });
});

describe('a folder', () => {
  const line = '{"id":"x"}\n';
  const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
  const definitions = JSON.stringify({
    collections: [{ name: 'a' }],
    indexes: [{ name: 'i', collection: 'a' }],
    views: [],
    queries: [],
    datasets: [],
    skills: '',
  });
  const manifest = JSON.stringify({
    granary_export: 1,
    app: 'demo',
    height: 1,
    collections: [{ name: 'a', file: 'a.ndjson', bytes: line.length, sha256: sha256(line), documents: 1, blobs: 0 }],
    files: [{ file: 'definitions.json', bytes: definitions.length, sha256: sha256(definitions) }],
    left_out: [],
  });
  beforeEach(async () => {
    await writeFile(join(folder, 'manifest.json'), manifest);
    await writeFile(join(folder, 'definitions.json'), definitions);
    await writeFile(join(folder, 'a.ndjson'), line);
    const state: AppImportState = { ...begun, manifest: sha256(manifest), imports: { a: 'gone' } };
    await writeState(folderStateOf(folder, 'import'), state);
  });

  test('goes on with a new import where the service has forgotten one, and tells what was told before', async () => {
    const { problems, kept } = await importApp(folder, callOf());
    expect(requests).toContain('POST /api/apps/demo/imports');
    expect(requests).toContain(`${line.length} bytes to new`);
    expect(problems).toEqual(['One.', 'The index "i" of "a" is failed: full.']);
    expect(kept).toEqual(['Two.']);
  });

  test('whose files were changed since the import began is refused', async () => {
    await writeFile(join(folder, 'a.ndjson'), line.replace('x', 'y'));
    await expect(importApp(folder, callOf())).rejects.toThrow('a.ndjson is not the file that manifest.json names');
    await rm(join(folder, 'a.ndjson'));
    await expect(importApp(folder, callOf())).rejects.toThrow('a.ndjson cannot be read');
    expect(requests).toEqual([]);
  });
});

test.each(['rows.ndjson', 'rows.ndjson.gz'])(
  'a file %s that is gone meanwhile is an error of the import',
  async (name) => {
    const file = join(folder, name);
    await writeFile(file, 'x');
    const removing = {
      ...app,
      request: async () => {
        await rm(file, { force: true });
        return { import_id: 'new', collection: 'a', status: 'open', offset: 0 };
      },
    } as unknown as App;
    const call = { ...callOf({ app: removing }), onProgress: () => {} };
    await expect(importFile(file, 'a', importDefinitionOf(file, {}), call)).rejects.toThrow(`${file} cannot be read`);
  },
);
