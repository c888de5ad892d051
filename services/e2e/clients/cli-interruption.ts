import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { readExport } from '../support/export-client';
import { borrowGranary, newApp, randomText, type Granary, type TestApp } from '../support/granary';
import { CuttingProxy } from './client/cutting-proxy';
import { CliPackage, environmentOf, resultOf, type CommandResult } from './cli-package';

/** The command line beside a lent Granary, with an empty folder for each test of a suite. */
export class CommandPlace {
  granary!: Granary;
  cli!: CliPackage;
  folder = '';

  /** Is called where a suite begins. */
  static ofSuite(): CommandPlace {
    const place = new CommandPlace();
    beforeAll(async () => {
      place.granary = await borrowGranary('direct');
      place.cli = await CliPackage.install();
    });
    afterAll(async () => {
      await place.cli?.remove();
      await place.granary?.stop();
    });
    beforeEach(async () => {
      place.folder = await mkdtemp(join(place.cli.folder, 'test-'));
    });
    afterEach(async () => {
      await rm(place.folder, { recursive: true, force: true });
    });
    return place;
  }

  run(app: TestApp, args: readonly string[], url = this.granary.url): Promise<CommandResult> {
    return this.cli.run(args, { env: { ...environmentOf(this.granary, app), GRANARY_URL: url }, cwd: this.folder });
  }

  text(name: string): Promise<string> {
    return readFile(join(this.folder, name), 'utf8');
  }
}

/** Documents whose texts have all that separates records and cells, and cannot be compressed to much less. */
export async function withRows(granary: Granary, count: number): Promise<TestApp> {
  const app = await newApp(granary);
  const documents = Array.from({ length: count }, (_, n) => ({
    id: `d${String(n).padStart(6, '0')}`,
    n,
    t: (n % 3 === 0 ? `"line"\r\nof ${n}, é` : `plain ${n}`) + randomText(60),
  }));
  await app.store('rows', documents);
  await app.store('rows', [
    { id: 'd000001', n: 1.5 },
    { id: 'd000002', deleted: true },
  ]);
  return app;
}

/** The collection `rows` as one answer of the service has it. */
export async function rowsOf(granary: Granary, { appId, key }: TestApp, query: string): Promise<string> {
  const path = `/api/apps/${appId}/collections/rows/export?${query}`;
  const { text: whole, isWhole } = await readExport({ url: granary.url, key, path });
  expect(isWhole).toBe(true);
  return whole;
}

/** A proxy whose connections are cut behind so many bytes, until they are no longer. */
export async function cuttingProxy(
  granary: Granary,
  bytes: { sent?: number; received?: number },
): Promise<CuttingProxy & { heal(): void }> {
  const limits = { sent: bytes.sent ?? Infinity, received: bytes.received ?? Infinity };
  const proxy = await CuttingProxy.start(granary.url, () => ({ ...limits }));
  return Object.assign(proxy, { heal: () => void Object.assign(limits, { sent: Infinity, received: Infinity }) });
}

/** Runs a command until so many of its connections were cut and a file is there, and sends it Ctrl-C or kills it. */
export async function interrupted(
  { cli, folder }: Pick<CommandPlace, 'cli' | 'folder'>,
  app: TestApp,
  args: readonly string[],
  proxy: CuttingProxy,
  { signal = 'SIGINT', awaited = '.' }: { signal?: NodeJS.Signals; awaited?: string } = {},
): Promise<CommandResult> {
  const env = environmentOf(proxy, app);
  const child = cli.start(args, { env, cwd: folder });
  const ended = resultOf(child);
  const isDue = () => proxy.cuts >= 3 && existsSync(join(folder, awaited));
  while (!isDue() && child.exitCode === null) await delay(20);
  child.kill(signal);
  return ended;
}
