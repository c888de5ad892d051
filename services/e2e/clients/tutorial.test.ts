import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { newApp, send, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { ClientPackage } from './client-package';
import { runProgram } from './generated';
import { blocksOf, readPage, runPage } from './guide-page';

const collections = ['books', 'members', 'loans', 'covers'];

// Its own, since the page names its app.
let granary: Granary;
let client: ClientPackage | undefined;
beforeAll(async () => {
  granary = await startGranary('direct');
});
afterAll(async () => {
  await client?.remove();
  await granary?.stop();
});

/** All versions of the documents of an app, without what is of the moment of an upload. */
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

/** What a reader is shown by both halves of the page. */
async function readsOf(app: string, key: string): Promise<unknown[]> {
  const paths = [`/api/views/${app}/read_authors/data`, `/api/queries/${app}/at_home/data?author=Joyce`];
  const answers = await Promise.all(paths.map((path) => send(granary.url, 'GET', path, { key })));
  return answers.map(({ body }) => body['records']);
}

test('api.md builds the same application with curl and with the client', async () => {
  const { statuses, shown, output } = await runPage(granary, 'api.md', '');
  const refused = statuses.map((line) => line.slice(0, 3)).filter((status) => !status.startsWith('2'));
  expect(refused).toEqual(['422', '412', '412']);
  expect(shown).toBe(5);
  expect(output).toContain('id: 6.1-');
  const [, key] = /X-App-Key: (app_\S+)/.exec(statuses.at(-1)!)!;

  client = await ClientPackage.install();
  const blocks = blocksOf(await readPage('api.md')).filter(({ language }) => language === 'ts');
  await writeFile(join(client.folder, 'library.ts'), blocks.map(({ text }) => text).join('\n'));
  await client.compile({ module: 'nodenext' }, ['library.ts']);
  const mine = await newApp(granary, 'library-of-the-client');
  const printed = await runProgram(process.execPath, ['library.js'], {
    cwd: client.folder,
    env: { URL: granary.url, APP_ID: mine.appId, APP_KEY: mine.key },
  });
  expect(printed).toMatch(/^stored in commit 1\n/);
  expect(printed).toContain("[ { of: { author: 'Austen' }, loans: 2 } ]\n[ { title: 'Ulysses', author: 'Joyce' } ]\n");
  expect(printed).toMatch(/\n\[ 'emma' \] stand on shelf A3\n2 loans\n3 versions of Emma\n$/);

  const byCurl = await documentsOf('library', key!);
  expect(Object.values(byCurl).map((versions) => versions.length)).toEqual([7, 2, 2, 1]);
  expect(await documentsOf(mine.appId, mine.key)).toEqual(byCurl);
  expect(await readsOf(mine.appId, mine.key)).toEqual(await readsOf('library', key!));
});
