import { randomUUID } from 'node:crypto';
import { copyFile, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { borrowGranary, newApp, type Granary, type TestApp } from '../support/granary';
import describedApp from './cli/described-app.json';
import { CliPackage, environmentOf, resultOf } from './cli-package';
import { ClientPackage } from './client-package';

const file = 'granary.gen.ts';

let granary: Granary;
let cli: CliPackage;
let client: ClientPackage;
beforeAll(async () => {
  granary = await borrowGranary('direct');
  cli = await CliPackage.install();
  client = await ClientPackage.install();
  await copyFile(join(__dirname, 'cli/types-use.ts'), join(client.folder, 'types-use.ts'));
});
afterAll(async () => {
  await client?.remove();
  await cli?.remove();
  await granary?.stop();
});

/** An app with the collections, views and queries of `described-app.json`. */
async function newDescribedApp(): Promise<TestApp> {
  const app = await newApp(granary, `typed-${randomUUID()}`);
  for (const [kind, definitions] of Object.entries(describedApp)) {
    for (const definition of definitions) {
      const { status, text } = await app.call('POST', `/api/apps/${app.appId}/${kind}`, definition);
      if (status > 202) throw new Error(`${definition.name}: ${status} ${text}`);
    }
  }
  return app;
}

/** Runs `granary` in the folder of the client. */
const runCommand = (app: TestApp, ...args: string[]) =>
  cli.run(args, { env: environmentOf(granary, app), cwd: client.folder });

const textOf = (name: string) => readFile(join(client.folder, name), 'utf8');

/** Compiles the program that uses the types. */
async function compileUse(): Promise<void> {
  const name = /^export interface (\w+) /m.exec(await textOf(file))![1]!;
  const library = `export type { BooksDocument, ${name} as Library } from './granary.gen.js';`;
  await writeFile(join(client.folder, 'library.ts'), library);
  await client.compile({ module: 'nodenext', noEmit: true, noUnusedLocals: true }, ['types-use.ts']);
}

const addField = (app: TestApp, name: string, rule: object) => {
  const { fields } = describedApp.collections[0]!.schema_definition!;
  const schema = { fields: { ...fields, [name]: rule } };
  return app.call('PUT', `/api/apps/${app.appId}/collections/books`, { schema_definition: schema });
};

test('types of an app let compile what fits it and nothing else, whatever its names are', async () => {
  const app = await newDescribedApp();
  expect(await runCommand(app, 'types', '--out', file)).toMatchObject({ code: 0, stdout: '' });
  await compileUse();
  expect(await runCommand(app, 'types')).toEqual({ code: 0, stdout: await textOf(file), stderr: '' });
});

test('a check tells types of before from those of now, and a file that is current is left alone', async () => {
  const app = await newDescribedApp();
  await rm(join(client.folder, file), { force: true });
  const missing = await runCommand(app, 'types', '--check');
  expect(missing).toMatchObject({ code: 1, stdout: '', stderr: expect.stringContaining('is not there') as unknown });
  await runCommand(app, 'types', '--out', file);
  const { ino } = await stat(join(client.folder, file));
  expect(await runCommand(app, 'types', '--check')).toMatchObject({ code: 0 });
  // What is no part of the types is no reason to write them.
  expect((await app.call('PUT', `/api/skills/${app.appId}/skills.md`, { markdown: 'Books.' })).status).toBe(200);
  expect(await runCommand(app, 'types', '--check', '--out', file)).toMatchObject({ code: 0 });
  expect(await runCommand(app, 'types', '--out', file)).toMatchObject({ code: 0 });
  expect((await stat(join(client.folder, file))).ino).toBe(ino);

  expect((await addField(app, 'isbn', { type: 'string', required: true })).status).toBe(200);
  const stale = await runCommand(app, 'types', '--check');
  expect(stale).toMatchObject({ code: 1, stdout: '' });
  expect(stale.stderr).toMatch(/line \d+ is .*, and has to be "isbn: string;"/);
  expect(stale.stderr).toContain(`\`granary types --out ${file}\``);
  await runCommand(app, 'types', '--out', file);
  await expect(compileUse()).rejects.toThrow(/Property 'isbn' is missing/);
});

test('a file that is watched follows the definitions of its app until Ctrl-C', async () => {
  const app = await newDescribedApp();
  await rm(join(client.folder, file), { force: true });
  const child = cli.start(['types', '--watch'], { env: environmentOf(granary, app), cwd: client.folder });
  const ended = resultOf(child);
  try {
    await eventually(async () => (await textOf(file).catch(() => '')) !== '');
    expect(await textOf(file)).not.toContain('isbn');
    expect((await addField(app, 'isbn', { type: 'string' })).status).toBe(200);
    await eventually(async () => (await textOf(file)).includes('isbn?: string | null;'));
    expect(await runCommand(app, 'types', '--check')).toMatchObject({ code: 0 });
  } finally {
    child.kill('SIGINT');
  }
  expect(await ended).toMatchObject({
    code: 130,
    stdout: '',
    stderr: expect.stringContaining('is written') as unknown,
  });
});
