import { readdir, readFile, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { eventually } from '@granary/testing/eventually';
import { newApp, type TestApp } from '../support/granary';
import { environmentOf, resultOf } from './cli-package';
import { CommandPlace, cuttingProxy, interrupted, rowsOf, withRows } from './cli-interruption';

const place = CommandPlace.ofSuite();

const formats: Array<[string, string[], string]> = [
  ['lines', [], ''],
  ['an array', ['--format', 'json'], 'format=json'],
  ['a table', ['--format', 'csv'], 'format=csv'],
  ['versions', ['--history'], 'history=true'],
  ['a table of versions', ['--history', '--format', 'csv'], 'history=true&format=csv'],
  ['some documents', ['--find', '{"n":{"gte":900}}', '--deleted'], 'find={"n":{"gte":900}}&deleted=include'],
  ['fields without ids', ['--select', 't', '--format', 'json'], 'select=t&format=json'],
  ['a table for spreadsheets', ['--format', 'csv', '--formulas', 'escape'], 'format=csv&formulas=escape'],
];

test('an export goes on where connections are cut, and is byte for byte one that was not', async () => {
  const app = await withRows(place.granary, 6_000);
  const proxy = await cuttingProxy(place.granary, { received: 90_000 });
  try {
    for (const [, args, query] of formats.slice(0, -2)) {
      const { code, stdout } = await place.run(app, ['export', 'rows', ...args], proxy.url);
      expect(code).toBe(0);
      expect(stdout).toBe(await rowsOf(place.granary, app, query));
    }
    expect(proxy.cuts).toBeGreaterThanOrEqual(formats.length);
  } finally {
    proxy.stop();
  }
});

test.each(formats)('an export of %s that is interrupted says how it goes on, and does', async (_, args, query) => {
  const app = await withRows(place.granary, 6_000);
  const proxy = await cuttingProxy(place.granary, { received: 60_000 });
  try {
    const command = ['export', 'rows', '--out', 'rows.out', ...args];
    const { code, stdout, stderr } = await interrupted(place, app, command, proxy);
    expect({ code, stdout }).toEqual({ code: 130, stdout: '' });
    expect(stderr).toMatch(/rows\.out\.part has [\d,]+ records at height 2\./);
    expect(stderr).toContain('granary export rows --out rows.out');
    expect((await readdir(place.folder)).sort()).toEqual(['rows.out.granary-export', 'rows.out.part']);
    expect(await place.text('rows.out.granary-export')).not.toContain(app.key);
    const other = await place.run(app, [...command, '--at', '1'], proxy.url);
    expect(other.code).toBe(1);
    expect(other.stderr).toContain('a part of another export: it is of height 2');
    await app.store('rows', [{ id: 'd000003', n: 'later' }, { id: 'later' }]);
    proxy.heal();
    const resumed = await place.run(app, command, proxy.url);
    expect(resumed).toMatchObject({ code: 0, stdout: '' });
    expect(resumed.stderr).toContain('granary tail rows --since 2');
    expect(await place.text('rows.out')).toBe(await rowsOf(place.granary, app, `${query}&at=2`));
    expect(await readdir(place.folder)).toEqual(['rows.out']);
    expect(await place.run(app, command, proxy.url)).toMatchObject({ code: 2 });
  } finally {
    proxy.stop();
  }
});

test('an export that is killed goes on behind what it has noted', async () => {
  const app = await withRows(place.granary, 6_000);
  const proxy = await cuttingProxy(place.granary, { received: 12_000 });
  try {
    const command = ['export', 'rows', '--out', 'rows.ndjson'];
    const killing = { signal: 'SIGKILL', awaited: 'rows.ndjson.granary-export' } as const;
    const { code } = await interrupted(place, app, command, proxy, killing);
    expect(code).toBeNull();
    const left = ['rows.ndjson.granary-export', 'rows.ndjson.lock', 'rows.ndjson.part'];
    expect(await readdir(place.folder)).toEqual(expect.arrayContaining(left));
    const { position } = JSON.parse(await place.text('rows.ndjson.granary-export')) as {
      position: { records: number };
    };
    expect(position.records).toBeGreaterThan(0);
    proxy.heal();
    expect(await place.run(app, command, proxy.url)).toMatchObject({ code: 0, stdout: '' });
    expect(await place.text('rows.ndjson')).toBe(await rowsOf(place.granary, app, ''));
    expect(await readdir(place.folder)).toEqual(['rows.ndjson']);
  } finally {
    proxy.stop();
  }
});

test('the name of a file says its format, and .gz that it is compressed', async () => {
  const app = await withRows(place.granary, 10);
  expect((await place.run(app, ['export', 'rows', '--out', 'rows.csv'])).code).toBe(0);
  expect(await place.text('rows.csv')).toBe(await rowsOf(place.granary, app, 'format=csv'));
  expect((await place.run(app, ['export', 'rows', '--out', 'rows.json.gz'])).code).toBe(0);
  const unzipped = gunzipSync(await readFile(join(place.folder, 'rows.json.gz'))).toString();
  expect(unzipped).toBe(await rowsOf(place.granary, app, 'format=json'));
  const target = await newApp(place.granary);
  const imported = await place.run(target, ['import', 'rows', 'rows.json.gz']);
  expect(JSON.parse(imported.stdout)).toMatchObject({ written: 9, failed: 0 });
  expect(await rowsOf(place.granary, target, '')).toBe(await rowsOf(place.granary, app, ''));
});

describe('an import', () => {
  const rows = 9_000;
  const linesOf = (count: number) =>
    Array.from({ length: count }, (_, n) => `${n},${n % 2 === 0 ? `"line\n""${n}"""` : 'plain'.repeat(10)}`);
  let app: TestApp;
  beforeEach(async () => {
    app = await newApp(place.granary);
    await writeFile(join(place.folder, 'rows.csv'), ['id,t', ...linesOf(rows), ''].join('\n'));
  });
  const stats = async () =>
    (await app.call<Record<string, number>>('GET', `/api/apps/${app.appId}/collections/rows/stats`)).body;

  test('that is interrupted says the command with which it goes on, and stores each record once', async () => {
    const proxy = await cuttingProxy(place.granary, { sent: 100_000 });
    try {
      const command = ['import', 'rows', 'rows.csv', '--mode', 'upsert'];
      const { code, stderr } = await interrupted(place, app, command, proxy);
      expect(code).toBe(130);
      expect(stderr).toContain('granary import rows rows.csv --mode upsert');
      expect(await place.text('rows.csv.granary-import')).not.toContain(app.key);
      const other = await place.run(app, [...command, '--on-error', 'continue'], proxy.url);
      expect(other).toMatchObject({ code: 1, stdout: '' });
      expect(other.stderr).toContain('its --on-error is "abort"');
      proxy.heal();
      const { stdout, stderr: rest } = await place.run(app, command, proxy.url);
      expect(rest).toBe('');
      expect(JSON.parse(stdout)).toMatchObject({ written: rows, skipped: 0, failed: 0, lines: rows * 1.5 + 1 });
      expect(await stats()).toMatchObject({ document_count: rows, version_count: rows });
      expect(await readdir(place.folder)).toEqual(['rows.csv']);
    } finally {
      proxy.stop();
    }
  });

  test('of a file that was changed is refused, unless it begins anew', async () => {
    const proxy = await cuttingProxy(place.granary, { sent: 100_000 });
    try {
      const command = ['import', 'rows', 'rows.csv'];
      await interrupted(place, app, command, proxy);
      proxy.heal();
      await utimes(join(place.folder, 'rows.csv'), new Date(), new Date(1_000));
      const touched = await place.run(app, command, proxy.url);
      expect(touched.code).toBe(1);
      expect(touched.stderr).toContain('the file was changed at 1970');
      await writeFile(join(place.folder, 'rows.csv'), 'id,t\n1,one\n');
      const changed = await place.run(app, command, proxy.url);
      expect(changed.stderr).toContain('and has 11 now');
      expect(changed.stderr).toContain('--restart');
      const { code, stdout } = await place.run(app, [...command, '--restart'], proxy.url);
      expect(code).toBe(0);
      expect(JSON.parse(stdout)).toMatchObject({ written: 1 });
      const { body } = await app.call<{ imports: object[] }>('GET', `/api/apps/${app.appId}/imports`);
      expect(body.imports).toHaveLength(1);
    } finally {
      proxy.stop();
    }
  });

  test('that is dry checks everything, and stores nothing', async () => {
    await writeFile(join(place.folder, 'bad.ndjson'), '{"id":"a"}\n{"id":\n{"id":"c"}\n');
    const dry = await place.run(app, ['import', 'rows', 'bad.ndjson', '--dry-run', '--on-error', 'continue']);
    expect(dry.code).toBe(1);
    expect(JSON.parse(dry.stdout)).toMatchObject({ dry_run: true, written: 2, failed: 1, height: null });
    expect(dry.stderr).toContain('nothing is stored');
    const { status } = await app.call('GET', `/api/apps/${app.appId}/collections/rows`);
    expect(status).toBe(404);
  });

  test('tells what could not be stored, and writes all of it to a file', async () => {
    const bad = Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? `{"id":"${n}"}\n` : '{"id":\n')).join('');
    await writeFile(join(place.folder, 'bad.ndjson'), bad);
    const aborted = await place.run(app, ['import', 'rows', 'bad.ndjson']);
    expect(aborted).toMatchObject({ code: 1, stdout: '' });
    expect(aborted.stderr).toContain('It ended at line 2 of bad.ndjson');
    const told = await place.run(app, ['import', 'rows', 'bad.ndjson', '--on-error', 'continue']);
    expect(told.code).toBe(1);
    expect(told.stderr.match(/^line \d+:/gm)).toEqual(['line 2:', 'line 4:', 'line 6:', 'line 8:', 'line 10:']);
    expect(told.stderr).toContain('--errors <file>');
    const written = await place.run(app, [
      'import',
      'rows',
      'bad.ndjson',
      '--on-error',
      'continue',
      '--errors',
      'errors',
    ]);
    expect(JSON.parse(written.stdout)).toMatchObject({ written: 10, failed: 10 });
    const errors = (await place.text('errors')).trim().split('\n');
    expect(errors.map((line) => (JSON.parse(line) as { line: number }).line)).toEqual(
      Array.from({ length: 10 }, (_, n) => 2 * n + 2),
    );
    expect((await readdir(place.folder)).sort()).toEqual(['bad.ndjson', 'errors', 'rows.csv']);
  });

  test('of stdin that is interrupted does not stay open', async () => {
    const imports = async () =>
      (await app.call<{ imports: object[] }>('GET', `/api/apps/${app.appId}/imports`)).body.imports;
    const child = place.cli.start(['import', 'rows', '-'], {
      env: environmentOf(place.granary, app),
      cwd: place.folder,
    });
    const ended = resultOf(child);
    try {
      child.stdin.write('{"id":"p"}\n');
      await eventually(async () => (await imports()).length === 1);
      child.kill('SIGINT');
      expect(await ended).toMatchObject({ code: 130, stdout: '' });
      expect(await imports()).toEqual([]);
    } finally {
      child.kill('SIGKILL');
    }
  });

  test('takes stdin and compressed tables', async () => {
    const options = { env: environmentOf(place.granary, app), cwd: place.folder };
    const piped = await place.cli.run(['import', 'rows', '-'], { ...options, input: '{"id":"p","n":1.50}\n' });
    expect(JSON.parse(piped.stdout)).toMatchObject({ written: 1 });
    await writeFile(join(place.folder, 'more.tsv.gz'), gzipSync('id\tyear\nq\t1817\n'));
    expect((await place.run(app, ['import', 'rows', 'more.tsv.gz', '--types', 'year:number'])).code).toBe(0);
    expect(await rowsOf(place.granary, app, '')).toBe('{"id":"p","n":1.50}\n{"id":"q","year":1817}\n');
  });
});
