import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Failure } from '../failure.ts';
import { checkTypes, differenceOf, writeTypes } from './types-file.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'granary-types-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

test('a file is written when its text differs, and left alone where it is the same but for its line ends', async () => {
  const file = join(folder, 'types.ts');
  expect(await writeTypes(file, 'a\nb\n')).toBe(true);
  expect(await writeTypes(file, 'a\nb\n')).toBe(false);
  await writeFile(file, 'a\r\nb\r\n');
  expect(await writeTypes(file, 'a\nb\n')).toBe(false);
  expect(await writeTypes(file, 'a\nc\n')).toBe(true);
  expect(await readFile(file, 'utf8')).toBe('a\nc\n');
  expect(await readdir(folder)).toEqual(['types.ts']);
  await expect(writeTypes(join(folder, 'none', 'types.ts'), 'a')).rejects.toThrow(Failure);
  await expect(writeTypes(folder, 'a')).rejects.toThrow(Failure);
});

test('a check passes for this text alone', async () => {
  const file = join(folder, 'types.ts');
  await expect(checkTypes(file, 'a\n')).rejects.toThrow('is not there');
  await writeFile(file, 'a\r\n');
  await checkTypes(file, 'a\n');
  await expect(checkTypes(file, 'b\n')).rejects.toThrow('line 1 is "a", and has to be "b"');
  await writeFile(file, '');
  await expect(checkTypes(file, 'a\n')).rejects.toThrow('line 1 is "", and has to be "a"');
});

test('the first line that differs is told', () => {
  expect(differenceOf('a\nb', 'a\nc\nd')).toBe('line 2 is "b", and has to be "c"');
  expect(differenceOf('a', 'a\nc')).toBe('line 2 is missing, and has to be "c"');
  expect(differenceOf('a\nb\n', 'a\n')).toBe('line 2 is "b", and has to be ""');
  expect(differenceOf('a\nb', 'a')).toBe('it has more lines, from line 2 on');
});
