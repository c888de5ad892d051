import { existsSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { changeProfiles, readProfiles } from './profile-file.ts';

let home: string;
let folder: string;
const before = process.env['XDG_CONFIG_HOME'];
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'granary-profiles-'));
  folder = join(home, 'granary');
  process.env['XDG_CONFIG_HOME'] = home;
});
afterEach(async () => {
  if (before === undefined) delete process.env['XDG_CONFIG_HOME'];
  else process.env['XDG_CONFIG_HOME'] = before;
  await rm(home, { recursive: true });
});

const url = 'http://localhost:8080';
const textWith = (...names: string[]): string =>
  JSON.stringify({ current: 'default', profiles: Object.fromEntries(names.map((name) => [name, { url }])) });
const add = (name: string) =>
  changeProfiles(({ profiles }) => {
    profiles[name] = { url };
  });
const storedNames = async () => Object.keys((await readProfiles()).profiles).sort();

test('changes at the same time are all kept, in one file that only its owner reads', async () => {
  const names = Array.from({ length: 20 }, (_, number) => `p${String(number).padStart(2, '0')}`);
  await Promise.all(names.map(add));
  expect(await storedNames()).toEqual(names);
  const files = readdirSync(folder);
  expect(files).toEqual(['profiles.20.json']);
  expect((await stat(join(folder, files[0]!))).mode & 0o777).toBe(0o600);
});

test('a command that was slow does not store what is older than what others have stored', async () => {
  await add('first');
  let calls = 0;
  await changeProfiles(({ profiles }) => {
    calls += 1;
    // Two others have stored something since, and the file of the earlier one is removed already.
    if (calls === 1) {
      writeFileSync(join(folder, 'profiles.3.json'), textWith('first', 'second', 'third'));
    }
    profiles['slow'] = { url };
  });
  expect(calls).toBe(2);
  expect(await storedNames()).toEqual(['first', 'second', 'slow', 'third']);
  expect(readdirSync(folder)).toEqual(['profiles.4.json']);
});

test('the file of an earlier version is read, and goes with the first change', async () => {
  await mkdir(folder);
  const file = join(folder, 'profiles.json');
  await writeFile(file, textWith('old'), { mode: 0o644 });
  expect(await storedNames()).toEqual(['old']);
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  await add('new');
  expect(await storedNames()).toEqual(['new', 'old']);
  expect(existsSync(file)).toBe(false);
});

test('a change that fails stores nothing, and what is damaged is named and kept', async () => {
  await add('first');
  const failing = changeProfiles(() => {
    throw new Error('No');
  });
  await expect(failing).rejects.toThrow('No');
  expect(readdirSync(folder)).toEqual(['profiles.1.json']);
  renameSync(join(folder, 'profiles.1.json'), join(folder, 'profiles.2.json'));
  await writeFile(join(folder, 'profiles.2.json'), '{"current":');
  await expect(add('second')).rejects.toThrow('profiles.2.json is damaged');
  expect(await readFile(join(folder, 'profiles.2.json'), 'utf8')).toBe('{"current":');
});
