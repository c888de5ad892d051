import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { newApp, operatorKey, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { runProgram, withFolder } from './generated';

let granary: Granary;
beforeAll(async () => {
  // Its own, since the pages name the app.
  granary = await startGranary('direct');
});
afterAll(() => granary.stop());

const entities: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'" };

/** The command of each operation, in the order of the page. */
const commandsOf = (page: string): Array<{ id: string; command: string }> =>
  [...page.matchAll(/<article id="(\w+)">[^]*?<h4>Example<\/h4>\n<pre[^>]*><code>([^]*?)<\/code>/g)].map(
    ([, id, text]) => ({ id: id!, command: text!.replace(/&(#?\w+);/g, (_, name: string) => entities[name]!) }),
  );

/**
 * They need an id that an earlier answer shows, the signature of a wallet, an encrypted field, for which an index is
 * paid first, or a destination for the payout.
 */
const withPlaceholder = {
  getTask: 404,
  revokeKey: 404,
  getImport: 404,
  sendImport: 404,
  listImportErrors: 404,
  deleteImport: 404,
  createGrant: 401,
  listGrants: 401,
  revokeGrant: 401,
  listTransactionsOfUser: 401,
  rotateDataKey: 409,
  triggerPayout: 409,
};

test('the commands of /docs, typed in their order, find what they name', async () => {
  const { key } = await newApp(granary, 'demo');
  const commands = commandsOf(await (await fetch(`${granary.url}/docs`)).text());
  expect(commands.length).toBeGreaterThan(50);
  await withFolder(async (folder) => {
    await writeFile(join(folder, 'file.png'), 'not really');
    const script = commands.map(({ id, command }) =>
      command.replace('curl ', `echo "${id} $(curl -sS -o /dev/null -w '%{http_code}' `).replace(/$/, ')" >> statuses'),
    );
    const wallet = { WALLET_ADDRESS: 'a', WALLET_TIMESTAMP: '1', WALLET_PUBKEY: 'b', WALLET_SIGNATURE: 'c' };
    const env = { URL: granary.url, APP_KEY: key, OPERATOR_KEY: operatorKey, ...wallet };
    await runProgram('/bin/sh', ['-euc', script.join('\n')], { cwd: folder, env });
    const statuses = (await readFile(join(folder, 'statuses'), 'utf8')).trim().split('\n');
    expect(statuses).toHaveLength(commands.length);
    const refused = statuses.map((line) => line.split(' ')).filter(([, status]) => !status!.startsWith('2'));
    expect(Object.fromEntries(refused.map(([id, status]) => [id, Number(status)]))).toEqual(withPlaceholder);
  });
});
