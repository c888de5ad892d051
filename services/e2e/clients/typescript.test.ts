import { copyFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { borrowGranary, newApp, type Granary } from '../support/granary';
import { repository, runProgram, withFolder } from './generated';

let granary: Granary;
beforeAll(async () => {
  granary = await borrowGranary('direct');
});
afterAll(() => granary.stop());

const tool = (file: string, args: string[], cwd: string) =>
  runProgram(process.execPath, [join(repository, 'node_modules', file), ...args], { cwd });

const compilerOptions = {
  strict: true,
  noUncheckedIndexedAccess: true,
  skipLibCheck: true,
  module: 'nodenext',
  target: 'es2022',
  lib: ['es2022', 'dom', 'dom.iterable'],
  types: ['node'],
};

test('a client in TypeScript is generated, compiled, and pages and filters among its calls', async () => {
  const { appId, key } = await newApp(granary);
  await withFolder(async (folder) => {
    await symlink(join(repository, 'node_modules'), join(folder, 'node_modules'));
    await copyFile(join(__dirname, 'typescript/calls.ts'), join(folder, 'calls.ts'));
    await writeFile(join(folder, 'package.json'), '{"type":"module"}');
    await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['calls.ts'] }));
    await tool('openapi-typescript/bin/cli.js', [`${granary.url}/openapi.json`, '-o', 'api.ts'], folder);
    await tool('typescript/bin/tsc', [], folder);
    const said = await runProgram(process.execPath, ['calls.js', granary.url, appId, key], { cwd: folder });
    expect(Number(/^(\d+) calls$/m.exec(said)?.[1])).toBeGreaterThanOrEqual(20);
  });
});
