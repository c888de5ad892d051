import { spawnSync } from 'node:child_process';
import { link, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { resumingCommand } from '../session/resumption.ts';
import { exportRequestOf } from './export-request.ts';
import { importDefinitionOf, otherImport, type ImportState } from './import-request.ts';
import { otherExport, PartFile, type ExportState } from './part-file.ts';
import { readState, removeState, writeState } from './state-file.ts';
import { lock } from './transfer-lock.ts';

const place = { url: 'http://127.0.0.1:1', app: 'demo' };
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'granary-states-'));
});
afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

test('a state is there until it is removed, and one that is none of ours is refused', async () => {
  const file = join(folder, 'a.granary-import');
  expect(await readState(file)).toBeUndefined();
  await writeState(file, { version: 1, ...place });
  expect(await readState(file)).toEqual({ version: 1, ...place });
  await writeState(file, { version: 1, ...place, app: 'other' });
  expect(await readState(file)).toMatchObject({ app: 'other' });
  await removeState(file);
  expect(await readdir(folder)).toEqual([]);
  for (const text of ['', '{', 'null', '{"version":2,"url":"u","app":"a"}', '{"version":1,"url":"u"}']) {
    await writeFile(file, text);
    await expect(readState(file)).rejects.toThrow('is damaged, or of another release');
  }
});

test('an import goes on with the same file and the same options only', () => {
  const definition = importDefinitionOf('a.csv', { types: 'n:number' });
  const file = { sizeBytes: 10, modifiedMs: 1_000.5 };
  const begun: ImportState = { version: 1, ...place, collection: 'books', importId: 'j1', file, definition };
  // As it is read again from its file.
  const state = JSON.parse(JSON.stringify(begun)) as ImportState;
  const wanted = { collection: 'books', definition, file };
  expect(otherImport(state, place, wanted)).toBeUndefined();
  expect(otherImport(state, { ...place, app: 'x' }, wanted)).toContain('the app "demo"');
  expect(otherImport(state, { ...place, url: 'http://x' }, wanted)).toContain(place.url);
  expect(otherImport(state, place, { ...wanted, collection: 'x' })).toContain('the collection "books"');
  expect(otherImport(state, place, { ...wanted, file: { ...file, sizeBytes: 11 } })).toContain('10 bytes, and has 11');
  expect(otherImport(state, place, { ...wanted, file: { ...file, modifiedMs: 2_000 } })).toContain('was changed');
  for (const options of [{}, { types: 'n:string' }, { types: 'n:number', mode: 'skip' as const }]) {
    const other = importDefinitionOf('a.csv', options);
    expect(otherImport(state, place, { ...wanted, definition: other })).toMatch(/^its --(types|mode) is /);
  }
  const onError = importDefinitionOf('a.csv', { types: 'n:number', onError: 'continue' });
  expect(otherImport(state, place, { ...wanted, definition: onError })).toBe('its --on-error is "abort"');
});

test('an export goes on with the same request only', () => {
  const request = exportRequestOf('books', { format: 'csv', find: '{}', columns: 'id,a' });
  const begun: ExportState = {
    version: 1,
    ...place,
    request,
    height: 7,
    fileBytes: 5,
    position: { bytes: 5, records: 1 },
  };
  const state = JSON.parse(JSON.stringify(begun)) as ExportState;
  const other = (changes: Partial<typeof request>) => otherExport(state, { ...request, ...changes }, place);
  expect(other({})).toBeUndefined();
  expect(other({ height: 7 })).toBeUndefined();
  expect(other({ height: 8 })).toBe('it is of height 7');
  expect(other({ collection: 'x' })).toBe('its collection is "books"');
  expect(other({ format: 'json' })).toBe('its --format is "csv"');
  expect(other({ find: undefined })).toBe('its --find is "{}"');
  expect(other({ select: ['a'] })).toBe('its --select is not named');
  expect(other({ columns: ['a', 'id'] })).toBe('its --columns is ["id","a"]');
  expect(other({ hasHistory: true })).toBe('its --history is false');
  expect(other({ isGzip: true })).toBe('its --gzip is false');
  expect(otherExport(state, request, { ...place, app: 'x' })).toContain('the app "demo"');
});

describe('a file that is made in parts', () => {
  const request = exportRequestOf('books', {});
  const options = { isForced: false, restarts: false };

  test('goes on behind what is noted, and has its name once it is whole', async () => {
    const file = join(folder, 'books.ndjson');
    const first = await PartFile.open(file, request, place, options);
    await first.add(Buffer.from('a\nb\n'), { bytes: 4, records: 2, after: { id: 'b' } }, 7);
    await first.close();
    // A command that was killed has written these behind it.
    await writeFile(`${file}.part`, 'a\nb\nc');
    const second = await PartFile.open(file, request, place, options);
    expect([second.position, second.height]).toEqual([{ bytes: 4, records: 2, after: { id: 'b' } }, 7]);
    expect(await readdir(folder)).toEqual(['books.ndjson.granary-export', 'books.ndjson.lock', 'books.ndjson.part']);
    await second.add(Buffer.from('d\n'), { bytes: 6, records: 3, after: { id: 'd' } }, 7);
    await second.finish(Buffer.from('end'));
    expect(await readdir(folder)).toEqual(['books.ndjson']);
    expect(await readFile(file, 'utf8')).toBe('a\nb\nd\nend');
    await expect(PartFile.open(file, request, place, options)).rejects.toThrow('is there already');
  });

  test('begins anew where its part is too short, or that is asked for', async () => {
    const file = join(folder, 'books.ndjson');
    const begin = async () => {
      const part = await PartFile.open(file, request, place, options);
      await part.add(Buffer.from('a\nb\n'), { bytes: 4, records: 2 }, 7);
      await part.close();
    };
    await begin();
    await writeFile(`${file}.part`, 'a\n');
    const short = await PartFile.open(file, request, place, options);
    expect(short.position.bytes).toBe(0);
    await short.close();
    expect(await readdir(folder)).toEqual([]);
    await begin();
    const other = exportRequestOf('books', { deleted: true });
    await expect(PartFile.open(file, other, place, options)).rejects.toThrow('a part of another export');
    const anew = await PartFile.open(file, other, place, { ...options, restarts: true });
    expect([anew.position.bytes, anew.height]).toEqual([0, undefined]);
    await anew.close();
  });
});

describe('a file whose command was killed', () => {
  const request = exportRequestOf('books', {});
  const options = { isForced: false, restarts: false };
  let file: string;
  beforeEach(async () => {
    file = join(folder, 'books.ndjson');
    const part = await PartFile.open(file, request, place, options);
    await part.add(Buffer.from('a\nb\n'), { bytes: 4, records: 2, after: { id: 'b' } }, 7);
    await part.close();
  });

  test('behind its first bytes begins anew', async () => {
    await rm(`${file}.granary-export`);
    await writeFile(`${file}.granary-export.new`, '{"version":1,"ur');
    const part = await PartFile.open(file, request, place, options);
    expect(part.position.bytes).toBe(0);
    await part.finish(Buffer.from('c\n'));
    expect(await readFile(file, 'utf8')).toBe('c\n');
    expect(await readdir(folder)).toEqual(['books.ndjson']);
  });

  test('behind its end goes on behind its last record', async () => {
    await writeFile(`${file}.part`, 'a\nb\n]\n');
    const part = await PartFile.open(file, request, place, options);
    await part.finish(Buffer.from(']\n'));
    expect(await readFile(file, 'utf8')).toBe('a\nb\n]\n');
  });

  test.each([[options], [{ isForced: true, restarts: true }]])(
    'when it had its name and its part keeps that name, with %j',
    async (again) => {
      await link(`${file}.part`, file);
      const open = PartFile.open(file, request, place, again);
      if (again.isForced) await (await open).close();
      else await expect(open).rejects.toThrow('is there already');
      expect(await readFile(file, 'utf8')).toBe('a\nb\n');
      expect(await readdir(folder)).toEqual(['books.ndjson']);
    },
  );

  test('before it had removed its state is begun anew once the file is gone', async () => {
    await rm(`${file}.part`);
    const part = await PartFile.open(file, request, place, options);
    expect(part.position.bytes).toBe(0);
    await part.close();
    expect(await readdir(folder)).toEqual([]);
  });
});

test('a file that came into being meanwhile is kept, unless it may be replaced', async () => {
  const file = join(folder, 'books.ndjson');
  const request = exportRequestOf('books', {});
  for (const isForced of [false, true]) {
    const part = await PartFile.open(file, request, place, { isForced, restarts: false });
    if (!isForced) await part.add(Buffer.from('ours'), { bytes: 4, records: 1 }, 7);
    await writeFile(file, 'theirs');
    if (!isForced) {
      await expect(part.finish(Buffer.from(''))).rejects.toThrow('is there already');
      await part.close();
      expect(await readFile(file, 'utf8')).toBe('theirs');
    } else {
      expect(part.position.bytes).toBe(4);
      await part.finish(Buffer.from('!'));
      expect(await readFile(file, 'utf8')).toBe('ours!');
    }
  }
  expect(await readdir(folder)).toEqual(['books.ndjson']);
});

test('what is no plain file is not replaced', async () => {
  const request = exportRequestOf('books', {});
  await mkdir(join(folder, 'books'));
  for (const file of [join(folder, 'books'), '/dev/null']) {
    const opened = PartFile.open(file, request, place, { isForced: true, restarts: false });
    await expect(opened).rejects.toThrow('is no plain file');
  }
  expect(await readdir(folder)).toEqual(['books']);
});

test('a file is written by one command at a time, and a lock that is left is taken over', async () => {
  const file = join(folder, 'books.ndjson');
  const release = await lock(file);
  await expect(lock(file)).rejects.toThrow(`process id ${process.pid} writes ${file}`);
  await release();
  const ended = spawnSync(process.execPath, ['-e', '']).pid;
  for (const pid of [ended, process.pid]) {
    await writeFile(`${file}.lock`, String(pid));
    await (
      await lock(file)
    )();
  }
  expect(await readdir(folder)).toEqual([]);
  for (const holder of [String(process.ppid), '', 'text']) {
    await writeFile(`${file}.lock`, holder);
    await expect(lock(file)).rejects.toThrow(`writes ${file}`);
    expect(await readFile(`${file}.lock`, 'utf8')).toBe(holder);
  }
});

test('the command that goes on is one for a shell, and does not begin anew', () => {
  expect(resumingCommand(['export', 'books', '--find', `{"a": "it's"}`, '--restart', '--out', 'a.csv'])).toBe(
    `granary export books --find '{"a": "it'\\''s"}' --out a.csv`,
  );
});
