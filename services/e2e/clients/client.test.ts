import { readFile, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import type { Browser } from 'playwright-core';
import { eventually } from '@granary/testing/eventually';
import { describeWith, releaseBeforeForTests } from '@granary/testing/stack';
import { openPage, startBrowser } from '../support/browser';
import { borrowGranary, newApp, operatorKey, type Granary } from '../support/granary';
import { pricedNotes } from '../support/priced-app';
import { endAllProcesses, OwnGranary } from '../support/own-process';
import { ClientPackage } from './client-package';
import { repository, runProgram, withFolder } from './generated';

/** What a check needs of `clients/client/checks.ts`: an app of its own. */
interface Target {
  url: string;
  app: string;
  key: string;
}

interface CheckResult {
  name: string;
  error?: string;
  code?: string;
}

const checkCount = 16;
const largestBytes = 12 * 1_024;

let granary: Granary;
let client: ClientPackage;
beforeAll(async () => {
  granary = await borrowGranary('direct', 'simulated');
  client = await ClientPackage.install();
});
afterAll(async () => {
  await client?.remove();
  await granary?.stop();
});

async function newTargets(count = checkCount): Promise<Target[]> {
  const apps = await Promise.all(Array.from({ length: count }, () => newApp(granary)));
  return apps.map(({ appId, key }) => ({ url: granary.url, app: appId, key }));
}

function expectAll(results: CheckResult[]): void {
  expect(results).toHaveLength(checkCount);
  expect(results.filter(({ error }) => error !== undefined)).toEqual([]);
}

test('the package has what its users need, depends on nothing and is small', async () => {
  const installed = join(client.folder, 'node_modules/@granary/client');
  const { dependencies, scripts } = JSON.parse(await readFile(join(installed, 'package.json'), 'utf8')) as {
    dependencies?: object;
    scripts?: object;
  };
  expect([dependencies, scripts]).toEqual([undefined, undefined]);
  const stdin = { contents: `export * from '@granary/client';`, resolveDir: client.folder };
  const options = { bundle: true, minify: true, format: 'esm', write: false } as const;
  const { outputFiles } = await build({ ...options, stdin });
  expect(gzipSync(outputFiles[0]!.contents, { level: 9 }).length).toBeLessThanOrEqual(largestBytes);
  const part = { contents: `export { exactNumber } from '@granary/client';`, resolveDir: client.folder };
  expect((await build({ ...options, stdin: part })).outputFiles[0]!.contents.length).toBeLessThan(1_024);
});

test('its types compile for bundlers too, and are right by themselves', async () => {
  await client.compile({ module: 'esnext', moduleResolution: 'bundler', noEmit: true });
  await client.compile({ module: 'nodenext', skipLibCheck: false, types: [], noEmit: true }, ['types.ts']);
});

test('it knows each code of the service', async () => {
  const source = await readFile(join(repository, 'services/client/src/errors.ts'), 'utf8');
  const type = /export type ServiceCode =([^;]+);/.exec(source)![1]!;
  const documented = await readFile(join(repository, 'docs/errors.md'), 'utf8');
  const codes = [...documented.matchAll(/^\| \d+ +\| `([A-Z0-9_]+)`/gm)].map(([, code]) => code!);
  expect([...type.matchAll(/'(\w+)'/g)].map(([, code]) => code!).sort()).toEqual(codes.sort());
});

describe('in Node', () => {
  let nodes: Record<string, string>;
  beforeAll(async () => {
    const printed = await runProgram(process.execPath, ['scripts/node.mjs'], { cwd: repository });
    nodes = JSON.parse(printed.trim().split('\n').at(-1)!) as Record<string, string>;
  });

  const majors = process.platform === 'linux' ? ['20', '22', '24'] : [process.versions.node.split('.')[0]!];
  test.each(majors)('%s it does what it says', async (major) => {
    const version = Object.keys(nodes).find((each) => each.startsWith(`${major}.`))!;
    expectAll(await client.run<CheckResult[]>('node', await newTargets(), nodes[version]));
  });
});

describeWith(describe, 'chromium')('in Chromium', () => {
  let browser: Browser;
  let pages: Server;
  beforeAll(async () => {
    browser = await startBrowser();
    const page = `<!doctype html><meta charset="utf-8"><title>Checks</title><script type="importmap">${JSON.stringify({
      imports: { '@granary/client': '/node_modules/@granary/client/dist/index.js' },
    })}</script>`;
    pages = createServer((request, response) => {
      const file = normalize(new URL(request.url!, 'http://localhost').pathname);
      if (file === '/') return void response.writeHead(200, { 'Content-Type': 'text/html' }).end(page);
      readFile(join(client.folder, file)).then(
        (text) =>
          response.writeHead(200, { 'Content-Type': 'text/javascript' }).end(extname(file) === '.js' ? text : ''),
        () => response.writeHead(404).end(),
      );
    });
    await new Promise<void>((resolve) => pages.listen(0, '127.0.0.1', resolve));
  });
  afterAll(async () => {
    await browser?.close();
    pages?.closeAllConnections();
    pages?.close();
  });

  test('it does what it says, from a page of another origin', async () => {
    const page = await openPage(browser, `http://127.0.0.1:${(pages.address() as AddressInfo).port}/`);
    // As a text, for what translates the tests would change an import.
    const program = `import('/run.js').then(({ runChecks }) => runChecks(${JSON.stringify(await newTargets())}))`;
    expectAll(await page.evaluate<CheckResult[]>(program));
  });
});

describeWith(describe, 'release')('against the release before', () => {
  afterAll(endAllProcesses);

  test('it does what that has, and says which release has the rest', async () => {
    const folder = await releaseBeforeForTests();
    await withFolder(async (dataDir) => {
      const before = await OwnGranary.start(
        dataDir,
        { OPERATOR_KEY: operatorKey },
        join(folder, 'services/local/dist/main.js'),
      );
      try {
        const targets = await Promise.all(
          Array.from({ length: checkCount }, async () => {
            const { appId, key } = await newApp(before);
            return { url: before.url, app: appId, key };
          }),
        );
        const results = await client.run<CheckResult[]>('node', targets);
        const failed = results.filter(({ error }) => error !== undefined);
        expect(failed.map(({ name, code, error }) => [name, code ?? error])).toEqual([
          ['a map of a view stays right', 'VALIDATION_FAILED'],
          ['a feed tells each change once, from where its reader was', 'NOT_SUPPORTED'],
          ['a map of a collection stays right', 'NOT_SUPPORTED'],
          ['a collection is exported, and imported as it was', 'NOT_SUPPORTED'],
          ['a feed by a token goes on with the next one, also where that cannot be had at once', 'NOT_SUPPORTED'],
        ]);
        expect(failed.at(-2)!.error).toMatch(/is of a release without exports, which 0\.2\.0 and later ones have/);
      } finally {
        await before.end('SIGTERM');
      }
    });
  });
});

test('the program of docs/client.md compiles and runs', async () => {
  const page = await readFile(join(repository, 'docs/client.md'), 'utf8');
  const { appId, key } = await newApp(granary);
  const ours = { 'http://127.0.0.1:8080': granary.url, demo: appId, 'app_…': key };
  const program = Object.entries(ours).reduce(
    (text, [example, value]) => text.replaceAll(`'${example}'`, `'${value}'`),
    [...page.matchAll(/^```ts\n([^]*?)^```$/gm)].map(([, text]) => text).join('\n'),
  );
  await writeFile(join(client.folder, 'guide.ts'), `${program}\nconsole.log('"the end"');`);
  await client.compile({ module: 'nodenext' }, ['guide.ts']);
  expect(await client.run('guide', {})).toBe('the end');
});

test('what has a price is paid once, and no more than that', async () => {
  const app = await newApp(granary);
  const price = 1_000;
  const { key } = await pricedNotes(granary, app, price);
  const paid = await client.run<Record<string, unknown>>('pay', { url: granary.url, app: app.appId, key, price });
  expect(paid).toEqual({ refused: 'PAYMENT_REQUIRED', offers: true, tooDear: 'PAYMENT_REQUIRED', stored: 1, calls: 2 });
  const { body } = await app.list('notes');
  expect(body.total).toBe(1);
  const wallet = `/api/apps/${app.appId}/wallet`;
  // Finance learns of it a moment later.
  await eventually(async () => (await app.call<{ balance: number }>('GET', wallet)).body.balance === price * 0.8);
});
