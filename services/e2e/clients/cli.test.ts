import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { borrowGranary, newApp, operatorKey, type Granary, type TestApp } from '../support/granary';
import { CliPackage, environmentOf } from './cli-package';

let granary: Granary;
let cli: CliPackage;
let app: TestApp;
let env: Record<string, string>;
beforeAll(async () => {
  granary = await borrowGranary('direct');
  cli = await CliPackage.install();
  app = await newApp(granary);
  env = environmentOf(granary, app);
});
afterAll(async () => {
  await cli?.remove();
  await granary?.stop();
});

test('the package has all that it needs, and runs', async () => {
  const { version } = JSON.parse(await readFile(join(cli.folder, 'node_modules/granary/package.json'), 'utf8')) as {
    version: string;
  };
  expect(await cli.run(['--version'])).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' });
  expect((await readdir(join(cli.folder, 'node_modules'))).sort()).toEqual(['.bin', '.package-lock.json', 'granary']);
});

test('what is misspelt is refused, and what is near is named', async () => {
  const misspelt = await cli.run(['colections', 'list'], { env });
  expect(misspelt).toMatchObject({ code: 2, stdout: '' });
  expect(misspelt.stderr).toContain('Did you mean collections?');
  expect(await cli.run(['collections', 'list', '--jsn'], { env })).toMatchObject({ code: 2, stdout: '' });
  expect(await cli.run(['collections', 'show'], { env })).toMatchObject({ code: 2, stdout: '' });
});

test('errors name the next step, and their exit codes tell them apart', async () => {
  const missing = await cli.run(['collections', 'show', 'books'], { env });
  expect(missing).toMatchObject({ code: 4, stdout: '' });
  expect(missing.stderr).toContain('`granary collections list`');
  const wrongKey = await cli.run(['collections', 'list'], { env: { ...env, GRANARY_APP_KEY: 'app_wrong' } });
  expect(wrongKey).toMatchObject({ code: 3, stdout: '' });
  expect(wrongKey.stderr).toContain('`granary login`');
  const unreachable = await cli.run(['collections', 'list'], { env: { ...env, GRANARY_URL: 'http://127.0.0.1:1' } });
  expect(unreachable).toMatchObject({ code: 7, stdout: '' });
  expect(unreachable.stderr).toContain('`granary status`');
  const asJson = await cli.run(['collections', 'show', 'books', '--json'], { env });
  expect(JSON.parse(asJson.stderr)).toMatchObject({ code: 'COLLECTION_NOT_FOUND', status: 404 });
  expect(await cli.run(['collections', 'list'])).toMatchObject({ code: 2 });
});

describe('profiles', () => {
  const login = ['login', '--profile', 'work', '--key-stdin'];
  let home: Record<string, string>;
  beforeEach(async () => {
    home = { XDG_CONFIG_HOME: join(cli.folder, `config-${Math.random()}`) };
  });
  const flags = () => ['--url', granary.url, '--app', app.appId];
  const folder = () => join(home['XDG_CONFIG_HOME']!, 'granary');
  const profileFile = async () => {
    const [name, ...others] = await readdir(folder());
    expect(others).toEqual([]);
    return join(folder(), name!);
  };

  test('a key is stored for its owner alone, and used', async () => {
    expect(await cli.run([...login, ...flags()], { env: home, input: `${app.key}\n` })).toMatchObject({ code: 0 });
    expect((await stat(await profileFile())).mode & 0o777).toBe(0o600);
    expect(await cli.run(['collections', 'list', '--json'], { env: home })).toMatchObject({ code: 0, stdout: '[]\n' });
    const listed = await cli.run(['profiles'], { env: home });
    expect(listed.stdout).toContain(`work\t*\t${granary.url}\t${app.appId}\t…${app.key.slice(-4)}`);
    expect(await cli.run(['logout', '--profile', 'work'], { env: home })).toMatchObject({ code: 0 });
    expect(await readFile(await profileFile(), 'utf8')).not.toContain(app.key);
  });

  test('of logins at the same time none is lost', async () => {
    const names = Array.from({ length: 20 }, (_, number) => `p${number}`);
    const logins = await Promise.all(
      names.map((name) =>
        cli.run(['login', '--profile', name, '--key-stdin', ...flags()], { env: home, input: app.key }),
      ),
    );
    expect(logins.filter(({ code }) => code !== 0)).toEqual([]);
    const { stdout } = await cli.run(['profiles', '--json'], { env: home });
    const stored = (JSON.parse(stdout) as Array<{ name: string; app_key: string }>).map(({ name }) => name);
    expect(stored.sort()).toEqual(names.sort());
  });

  test('a key that is regenerated is in its profile, also where nobody reads what is printed', async () => {
    const own = await newApp(granary);
    await cli.run([...login, '--url', granary.url, '--app', own.appId], { env: home, input: own.key });
    const child = cli.start(['keys', 'regenerate', '--yes'], { env: home });
    child.stdout.destroy();
    await eventually(() => child.exitCode !== null);
    expect(child.exitCode).toBe(141);
    expect(await cli.run(['collections', 'list', '--json'], { env: home })).toMatchObject({ code: 0, stdout: '[]\n' });
    expect(await readFile(await profileFile(), 'utf8')).not.toContain(own.key);
  });

  test('a key that the service does not know is not stored', async () => {
    const refused = await cli.run([...login, ...flags()], { env: home, input: 'app_wrong' });
    expect(refused).toMatchObject({ code: 3, stdout: '' });
    await expect(readdir(folder())).rejects.toThrow('ENOENT');
  });

  test('the key of a profile goes to its service and its app only', async () => {
    await cli.run([...login, ...flags()], { env: home, input: app.key });
    const other = await newApp(granary);
    const ofOtherApp = await cli.run(['collections', 'list', '--app', other.appId], { env: home });
    expect(ofOtherApp).toMatchObject({ code: 3, stdout: '' });
    const { createServer } = await import('node:http');
    const keys: unknown[] = [];
    const stranger = createServer(({ headers }, response) => {
      keys.push(headers.authorization, headers['x-app-key'], headers['x-operator-key']);
      response.writeHead(401).end('{"error":"No","code":"UNAUTHENTICATED","details":{}}');
    });
    await new Promise<void>((resolve) => stranger.listen(0, '127.0.0.1', resolve));
    try {
      const url = `http://127.0.0.1:${(stranger.address() as { port: number }).port}`;
      expect(await cli.run(['collections', 'list', '--url', url], { env: home })).toMatchObject({ code: 3 });
      expect(keys).toEqual([undefined, undefined, undefined]);
    } finally {
      stranger.close();
    }
  });

  test('in a terminal it asks, and does not show the key', async () => {
    const answers: Array<[string, string]> = [
      ['URL of the service', `${granary.url}\r`],
      ['App', `${app.appId}\r`],
      ['Key', `${app.key}\r`],
    ];
    const shown = await cli.runInTerminal(['login'], { env: home }, { answers });
    expect(shown).toMatchObject({ code: 0 });
    expect(shown.stdout).toContain(`has the key of ${app.appId}`);
    expect(shown.stdout).not.toContain(app.key);
  });

  test('Ctrl-C at a question ends it, and stores nothing', async () => {
    const shown = await cli.runInTerminal(['login'], { env: home }, { answers: [['URL of the service', '\u0003']] });
    expect(shown).toMatchObject({ code: 130 });
    await expect(readdir(folder())).rejects.toThrow('ENOENT');
  });
});

test('collections as a table, as lines and as JSON', async () => {
  const created = await cli.run(['collections', 'create', 'books', '{"access_policy":{"read":"private"}}'], { env });
  expect(created).toMatchObject({ code: 0, stderr: '' });
  expect(JSON.parse(created.stdout)).toMatchObject({ name: 'books' });
  const lines = await cli.run(['collections', 'list'], { env });
  expect(lines.stdout.split('\n')[0]!.split('\t')[0]).toBe('collection');
  expect(lines.stdout.split('\n')[1]!.split('\t')[0]).toBe('books');
  expect(JSON.parse((await cli.run(['collections', 'list', '--json'], { env })).stdout)).toMatchObject([
    { name: 'books' },
  ]);
  const table = await cli.runInTerminal(['collections', 'list'], { env });
  expect(table.stdout).toContain('\u001b[1mcollection');
  expect((await cli.runInTerminal(['collections', 'list'], { env: { ...env, NO_COLOR: '1' } })).stdout).not.toContain(
    '\u001b',
  );
});

test('what destroys something asks for the name', async () => {
  await cli.run(['collections', 'create', 'drafts'], { env });
  expect(await cli.run(['collections', 'delete', 'drafts'], { env })).toMatchObject({ code: 2 });
  const other: Array<[string, string]> = [['to go on', 'draft\r']];
  expect(await cli.runInTerminal(['collections', 'delete', 'drafts'], { env }, { answers: other })).toMatchObject({
    code: 2,
  });
  expect((await cli.run(['collections', 'list'], { env })).stdout).toContain('drafts');
  const right: Array<[string, string]> = [['to go on', 'drafts\r']];
  expect(await cli.runInTerminal(['collections', 'delete', 'drafts'], { env }, { answers: right })).toMatchObject({
    code: 0,
  });
  expect((await cli.run(['collections', 'list'], { env })).stdout).not.toContain('drafts');
});

test('completion knows commands and names', async () => {
  await cli.run(['collections', 'create', 'letters'], { env });
  expect((await cli.run(['__complete', '--', 'collections', 'show', 'let'], { env })).stdout).toBe('letters\n');
  expect((await cli.run(['__complete', '--', 'colle'], { env })).stdout).toBe('collections\n');
  const away = { ...env, GRANARY_URL: 'http://127.0.0.1:1' };
  expect(await cli.run(['__complete', '--', 'collections', 'show', ''], { env: away })).toEqual({
    code: 0,
    stdout: '',
    stderr: '',
  });
});

test('bash completes with it', async () => {
  const { stdout } = await cli.run(['completion', 'bash']);
  const line = 'COMP_WORDS=(granary collections show let); COMP_CWORD=3; _granary; echo "${COMPREPLY[@]}"';
  expect(await cli.runShell(`${stdout}\n${line}`, { env })).toMatchObject({ code: 0, stdout: 'letters\n' });
});

test('no key is in the arguments of a process, nor in what --debug tells', async () => {
  const operator = { ...env, GRANARY_OPERATOR_KEY: operatorKey };
  const told = await cli.run(['collections', 'list', '--debug'], { env: operator });
  expect(told.stderr).toMatch(/GET \/api\/apps\/\S+\/api_collections\S+ → 200 \(\S+\) in \d+ ms/);
  expect(told.stdout + told.stderr).not.toContain(app.key);
  expect(told.stdout + told.stderr).not.toContain(operatorKey);
  const failed = await cli.run(['collections', 'show', 'nothing', '--debug'], { env: operator });
  expect(failed.stderr).not.toContain(app.key);
  const help = (await cli.run(['--help'])).stdout + (await cli.run(['login', '--help'])).stdout;
  // A flag with a key as its value would be in `ps` and in the history of the shell.
  expect(help).not.toMatch(/--[a-z-]*key <(?!file)/);
});

test('a query that is interrupted goes on with what its limit leaves', async () => {
  const total = 5_000;
  const limit = 4_500;
  const many = await newApp(granary);
  const documents = Array.from({ length: total }, (_, n) => ({ id: `d${n + 10_000}`, t: 'x'.repeat(100) }));
  for (const start of [0, total / 2]) await many.store('rows', documents.slice(start, start + total / 2));
  const ofApp = environmentOf(granary, many);
  const child = cli.start(['query', 'rows', '--sort', 'id', '--limit', String(limit)], { env: ofApp });
  let [stdout, stderr] = ['', ''];
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  // The command waits for its reader, so that it cannot have printed all of it.
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    if (stderr === '' && stdout.length > 100_000) child.stdout.pause();
  });
  await eventually(() => stdout.length > 100_000);
  child.kill('SIGINT');
  await eventually(() => stderr.includes('\n'));
  child.stdout.resume();
  await eventually(() => child.exitCode !== null);
  expect(child.exitCode).toBe(130);
  const [, command, left] = /(granary query rows --sort id --cursor \S+ --limit (\d+))/.exec(stderr)!;
  const resumed = await cli.runShell(command!, { env: ofApp });
  const lines = [...stdout.split('\n').slice(0, limit - Number(left)), ...resumed.stdout.trimEnd().split('\n')];
  expect(lines.map((line) => (JSON.parse(line) as { id: string }).id)).toEqual(
    documents.slice(0, limit).map(({ id }) => id),
  );
});

test('a reader that leaves ends it quietly', async () => {
  const child = cli.start(['completion', 'zsh'], { env });
  child.stdout.destroy();
  const stderr: string[] = [];
  child.stderr.setEncoding('utf8').on('data', (text: string) => stderr.push(text));
  await eventually(() => child.exitCode !== null);
  expect([child.exitCode, stderr.join('')]).toEqual([141, '']);
});
