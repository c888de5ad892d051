import { symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { operatorKey, send, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { installPackages, repository, runProgram, withFolder } from './generated';
import { blocksOf, readPage, runPage } from './guide-page';

const collections = ['books', 'loans', 'covers'];

// Its own, since the page names its app.
let granary: Granary;
beforeAll(async () => {
  granary = await startGranary('direct');
});
afterAll(() => granary?.stop());

/** Makes the folder that the page has its readers make: with the packages of the client and of the command line. */
async function prepareFolder(folder: string, page: string): Promise<void> {
  await writeFile(join(folder, 'package.json'), '{"type":"module","private":true}');
  await installPackages(folder, ['client', 'cli']);
  await symlink(join(repository, 'node_modules/@types'), join(folder, 'node_modules/@types'));
  const [settings, ...others] = blocksOf(page).filter(({ language }) => language === 'jsonc');
  expect(others).toEqual([]);
  await writeFile(join(folder, 'tsconfig.json'), settings!.text);
}

/** The programs of the page by the names of their files. A block begins with such a name or continues the program. */
function programsOf(page: string): Record<string, string> {
  const programs: Record<string, string> = {};
  let file = '';
  for (const { text } of blocksOf(page).filter(({ language }) => language === 'ts')) {
    file = /^\/\/ (\w+\.ts)\n/.exec(text)?.[1] ?? file;
    programs[file] = (programs[file] ?? '') + text;
  }
  return programs;
}

/** All versions of the documents of an app, without the members of a cover that differ between two uploads. */
async function documentsOf(app: string, key: string): Promise<Record<string, unknown[]>> {
  const documents: Record<string, unknown[]> = {};
  for (const name of collections) {
    const body = { root: `${app}::${name}`, include_history: true, sort: ['id'] };
    const answer = await send<{ records: Array<Record<string, unknown>> }>(granary.url, 'POST', '/list', { key, body });
    const ofUpload = ['id', 'blob_id', 'uploaded_at', 'tx_hash', 'celestia_height'];
    documents[name] = answer.body.records.map((record) =>
      Object.fromEntries(Object.entries(record).filter(([member]) => name !== 'covers' || !ofUpload.includes(member))),
    );
  }
  return documents;
}

/** The rows of the view and of the query that the page defines. */
async function readsOf(app: string, key: string): Promise<unknown[]> {
  const paths = [`/api/views/${app}/read_authors/data`, `/api/queries/${app}/at_home/data?author=Joyce`];
  const answers = await Promise.all(paths.map((path) => send(granary.url, 'GET', path, { key })));
  return answers.map(({ body }) => body['records']);
}

test('api.md builds the same application with curl and with the client, and its types fit', async () => {
  const page = await readPage('api.md');
  await withFolder(async (folder) => {
    await prepareFolder(folder, page);
    const { statuses, shown, output } = await runPage(granary, 'api.md', '', { folder });
    const refused = statuses.map((line) => line.slice(0, 3)).filter((status) => !status.startsWith('2'));
    expect(refused).toEqual(['422', '412', '412', '403']);
    expect(shown).toBe(6);
    // The stream shows the loan that was made while it was open.
    expect(output).toMatch(/event: ready\n[^]*\nid: \d+\.1-\w+\nevent: put\n.*"document":\{"id":"loan-4",/);
    const [, key] = /X-App-Key: (app_\S+)/.exec(statuses[1]!)!;

    const programs = programsOf(page);
    expect(Object.keys(programs)).toEqual(['library.ts', 'typed.ts']);
    for (const [name, text] of Object.entries(programs)) await writeFile(join(folder, name), text);
    await runProgram(process.execPath, [join(repository, 'node_modules/typescript/bin/tsc')], { cwd: folder });
    const env = { URL: granary.url, OPERATOR_KEY: operatorKey, APP_KEY: key };
    const printed = await runProgram(process.execPath, ['library.js'], { cwd: folder, env });
    const [, id, keyOfClient] = /^application (library-\d+) with the key (app_\S+)\nstored in commit 1\n/.exec(
      printed,
    )!;
    expect(printed).toContain(
      "[ { of: { author: 'Austen' }, loans: 2 } ]\n[ { title: 'Ulysses', author: 'Joyce' } ]\n",
    );
    expect(printed.match(/^[A-Z_]+(?= \{|$| undefined)/gm)).toEqual([
      'SCHEMA_VIOLATION',
      'PRECONDITION_FAILED',
      'PRECONDITION_FAILED',
      'FORBIDDEN',
    ]);
    expect(printed).toContain("[ 'emma' ] stand on shelf A3\n3 loans\n");
    expect(printed).toMatch(/\n3 versions of Emma\n\{"id":"emma",.*\} is what was stored\n$/);
    const typed = await runProgram(process.execPath, ['typed.js'], { cwd: folder, env });
    expect(typed).toBe('Emma\nPersuasion\nWalden\n');

    const byCurl = await documentsOf('library', key!);
    expect(Object.values(byCurl).map((versions) => versions.length)).toEqual([9, 3, 1]);
    expect(await documentsOf(id!, keyOfClient!)).toEqual(byCurl);
    expect(await readsOf(id!, keyOfClient!)).toEqual(await readsOf('library', key!));
  });
});
