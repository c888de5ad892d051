import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';

const root = path.join(__dirname, '../../..');
const ofRun = {
  'node_modules/@granary/local': { resolved: 'services/local', link: true },
  'node_modules/pg': { version: '1.0.0', integrity: 'sha512-pg', dependencies: { 'pg-types': '1' } },
  'node_modules/pg-types': { version: '1.0.0', integrity: 'sha512-types' },
  'node_modules/commander': { version: '1.0.0', integrity: 'sha512-commander' },
};
const ofTests = {
  'node_modules/jest': { version: '1.0.0', integrity: 'sha512-jest', dev: true },
  'node_modules/solc': { version: '1.0.0', integrity: 'sha512-solc' },
};
const lock = {
  '': { devDependencies: { jest: '1' } },
  'services/local': { dependencies: { pg: '1' } },
  'services/operator': { dependencies: { '@granary/local': '1' } },
  'services/cli': { dependencies: { commander: '1' } },
  'services/e2e': { dependencies: { solc: '1' } },
  ...ofRun,
  ...ofTests,
};
/** In place of npm: notes its arguments, and what it has installed as npm does. */
const npm = `const fs = require('node:fs');
fs.appendFileSync('npm.log', process.argv.slice(2).join(' ') + '\\n');
fs.mkdirSync('node_modules', { recursive: true });
setTimeout(() => fs.copyFileSync(process.argv.includes('--include=dev') ? 'all.json' : 'run.json', 'node_modules/.package-lock.json'), 500);
`;

let checkout: string;
const at = (file: string): string => path.join(checkout, file);
const write = (file: string, packages: object) => writeFile(at(file), JSON.stringify({ packages }));

beforeEach(async () => {
  checkout = await mkdtemp(path.join(os.tmpdir(), 'granary-install-'));
  await cp(path.join(root, 'scripts'), at('scripts'), { recursive: true });
  await mkdir(at('services'));
  await writeFile(at('package.json'), JSON.stringify(lock['']));
  await writeFile(at('npm-cli.js'), npm);
  await write('package-lock.json', lock);
  await write('run.json', ofRun);
  await write('all.json', { ...ofRun, ...ofTests });
});
afterEach(() => rm(checkout, { recursive: true, force: true }));

/** Installs what a start needs, or all, and returns what it says. */
function install(packages: 'run' | 'all'): Promise<string> {
  const program = `import { installWhenNeeded } from './scripts/install.mjs';
    await installWhenNeeded(process.cwd(), console.log, '${packages}');`;
  const env = { PATH: process.env.PATH, npm_execpath: at('npm-cli.js') };
  return new Promise((resolve, reject) => {
    const args = ['--input-type=module', '--eval', program];
    execFile(process.execPath, args, { cwd: checkout, env }, (error, said) => {
      if (error) reject(new Error(error.message));
      else resolve(said);
    });
  });
}

/** The command and the choice of packages of each call of npm so far. */
async function calls(): Promise<string[]> {
  const lines = (await readFile(at('npm.log'), 'utf8')).trim().split('\n');
  return lines.map((line) => line.replace(' --ignore-scripts --no-audit --no-fund', ''));
}

const run = '--omit=dev --workspace=services/operator --workspace=services/cli';

test('a start installs what runs; the tests add their tools to it, and both are content with all', async () => {
  expect(await install('run')).toMatch(/^Installing packages …\nInstalling packages: done in \d+ s\n$/);
  expect(await install('run')).toBe('');
  await install('all');
  expect(await install('run')).toBe('');
  expect(await install('all')).toBe('');
  expect(await calls()).toEqual([`ci ${run}`, 'install --no-save --include=dev']);
});

test('a start after a change of the lock file keeps the tools of the tests', async () => {
  await install('all');
  const changed = { 'node_modules/pg': { ...ofRun['node_modules/pg'], integrity: 'sha512-other' } };
  await write('package-lock.json', { ...lock, ...changed });
  await write('all.json', { ...ofRun, ...ofTests, ...changed });
  await install('run');
  expect(await calls()).toEqual(['ci --include=dev', 'ci --include=dev']);
});

test('of two commands at once one installs, and the other one waits', async () => {
  const said = await Promise.all([install('run'), install('run')]);
  expect(await calls()).toEqual([`ci ${run}`]);
  expect(said.filter((text) => text.startsWith('Installing packages'))).toHaveLength(1);
});

test('a command that was killed while it installed is succeeded', async () => {
  // No process has that number: it is above the maximum of Linux.
  await writeFile(at('.granary-install'), '99999999');
  await install('run');
  expect(await calls()).toEqual([`ci ${run}`]);
});
