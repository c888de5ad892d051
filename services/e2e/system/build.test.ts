import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';

const root = path.join(__dirname, '../../..');
let checkout: string;
const at = (file: string): string => path.join(checkout, 'services/one', file);

beforeEach(async () => {
  checkout = await mkdtemp(path.join(os.tmpdir(), 'granary-build-'));
  await cp(path.join(root, 'scripts'), path.join(checkout, 'scripts'), { recursive: true });
  await symlink(path.join(root, 'node_modules'), path.join(checkout, 'node_modules'));
  await mkdir(at('src/inner'), { recursive: true });
  await mkdir(at('src/gen'));
  await writeFile(at('package.json'), '{}');
  await writeFile(
    at('src/sum.ts'),
    "import { one } from './inner/one';\nexport const sum = (n: number): number => n + one;\n",
  );
  await writeFile(at('src/inner/one.ts'), "import type { Wire } from '../gen/wire';\nexport const one: Wire = 1;\n");
  await writeFile(at('src/inner/table.json'), '{"a":1}');
  await writeFile(at('src/gen/wire.ts'), 'export type Wire = number;\n');
  await writeFile(at('src/sum.test.ts'), 'test("sum", () => {});\n');
});
afterEach(() => rm(checkout, { recursive: true, force: true }));

/** Builds it as `npm start` does, and returns what that says. */
function build(): Promise<{ code: number; said: string }> {
  const program = `import { transpile } from './scripts/transpile.mjs';
    await transpile(process.cwd(), console.log).catch((error) => { console.log(error.message); process.exit(1); });`;
  const args = ['--input-type=module', '--eval', program];
  return new Promise((resolve) => {
    execFile(process.execPath, args, { cwd: checkout }, (error, said) => resolve({ code: error ? 1 : 0, said }));
  });
}

async function builtFiles(): Promise<string[]> {
  const entries = await readdir(at('dist'), { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map(({ parentPath, name }) => path.relative(at('dist'), path.join(parentPath, name))).sort();
}

const programs = ['inner/one.js', 'inner/one.js.map', 'inner/table.json', 'sum.js', 'sum.js.map'];

test('a build makes what runs from the sources, without tests and types, and a second one makes nothing', async () => {
  expect((await build()).said).toMatch(/^Building …\nBuilding: done in \d+ s\n$/);
  expect(await builtFiles()).toEqual(programs);
  const { sum } = (await import(at('dist/sum.js'))) as { sum: (n: number) => number };
  expect(sum(2)).toBe(3);
  const map = JSON.parse(await readFile(at('dist/inner/one.js.map'), 'utf8')) as { sources: string[] };
  expect(map.sources).toEqual(['../../src/inner/one.ts']);
  expect(await build()).toEqual({ code: 0, said: '' });
});

test('a build writes what has changed, and deletes what has lost its source', async () => {
  await build();
  const kept = await stat(at('dist/sum.js'));
  await writeFile(at('src/inner/one.ts'), 'export const one = 10;\n');
  await writeFile(at('src/inner/table.json'), '{"a":2}');
  await build();
  expect((await stat(at('dist/sum.js'))).ino).toBe(kept.ino);
  expect(await readFile(at('dist/inner/one.js'), 'utf8')).toContain('10');
  expect(await readFile(at('dist/inner/table.json'), 'utf8')).toBe('{"a":2}');

  await rm(at('src/inner'), { recursive: true });
  await writeFile(at('src/sum.ts'), 'export const sum = 0;\n');
  await build();
  expect(await builtFiles()).toEqual(['sum.js', 'sum.js.map']);
});

test('a build tells states of a source apart by what is in it, not by its time', async () => {
  await build();
  const { atime, mtime } = await stat(at('src/inner/one.ts'));
  await writeFile(at('src/inner/one.ts'), 'export const one = 7;\n');
  await utimes(at('src/inner/one.ts'), atime, mtime);
  await build();
  expect(await readFile(at('dist/inner/one.js'), 'utf8')).toContain('7');
});

test('a build completes what one that was killed has left', async () => {
  await build();
  // It had written the map of one program and a part of another program, which it had not put in its place.
  await rm(at('dist/sum.js'));
  await rm(at('dist/inner/one.js.map'));
  // No process has that number: it is above the maximum of Linux.
  await writeFile(at('dist/sum.js.99999999.tmp'), 'export cons');
  await build();
  expect(await builtFiles()).toEqual(programs);
});

test('several builds at once make the same as one', async () => {
  const builds = await Promise.all([build(), build(), build()]);
  for (const { code, said } of builds) expect({ code, said }).toMatchObject({ code: 0 });
  expect(await builtFiles()).toEqual(programs);
  expect(await build()).toEqual({ code: 0, said: '' });
});

test('what is no TypeScript is named, and does not replace the program that was there', async () => {
  await build();
  await writeFile(at('src/sum.ts'), 'export const sum = (;\n');
  await writeFile(at('src/inner/one.ts'), 'const = 1;\n');
  const { code, said } = await build();
  expect(code).toBe(1);
  expect(said).toContain('the build failed:');
  for (const name of ['src/sum.ts', 'src/inner/one.ts']) expect(said).toContain(name);
  expect(await readFile(at('dist/sum.js'), 'utf8')).toContain('sum');
});
