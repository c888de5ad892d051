import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { CliPackage, environmentOf } from '../clients/cli-package';
import { readExport } from '../support/export-client';
import { send } from '../support/granary';
import { CrashingGranary } from './crashing-granary';

/** Of the service and of the command, each. */
const kills = size({ run: 3, long: 20 });
/** Some seconds of work for each kill. */
const recordsOfKill = 60_000;

/** A table of rows, of which some have an end of a line in a cell. */
async function writeTable(file: string, rows: number): Promise<void> {
  const stream = createWriteStream(file);
  stream.write('id,n,t\n');
  for (let n = 0; n < rows; n += 1) {
    const isWritten = stream.write(`r${n},${n},${n % 5 === 0 ? `"a ""${n}""\nb"` : 'plain'.repeat(8)}\n`);
    if (!isWritten) await once(stream, 'drain');
  }
  stream.end();
  await once(stream, 'close');
}

/** How many records are stored of the import that has begun; 0 where nobody can say it. */
async function writtenIn(folder: string, { url, app }: CrashingGranary): Promise<number> {
  try {
    const state = await readFile(join(folder, 'rows.csv.granary-import'), 'utf8');
    const { importId } = JSON.parse(state) as { importId: string };
    const { body } = await send(url, 'GET', `/api/apps/${app.appId}/imports/${importId}`, { key: app.key });
    return (body['written'] as number | undefined) ?? 0;
  } catch {
    return 0;
  }
}

test(
  'an import by the command line goes through kills of the service and of the command, and stores each record once',
  async () => {
    const records = kills * recordsOfKill;
    const folder = await mkdtemp(join(tmpdir(), 'granary-cli-import-'));
    const cli = await CliPackage.install();
    const granary = await CrashingGranary.start('cli-import');
    try {
      await writeTable(join(folder, 'rows.csv'), records);
      const command = ['import', 'rows', 'rows.csv', '--types', 'n:number'];
      const env = environmentOf(granary, granary.app);
      const start = () => cli.start(command, { env, cwd: folder });
      /** Resolves once such a part of the records is stored. */
      const stored = (share: number) =>
        eventually(async () => (await writtenIn(folder, granary)) >= share * records, 120_000);
      for (let round = 0; round < kills; round += 1) {
        const child = start();
        const ended = once(child, 'close');
        await stored((2 * round + 1) / (2 * kills + 1));
        await granary.killNode();
        await stored((2 * round + 2) / (2 * kills + 1));
        expect({ round, exitCode: child.exitCode }).toEqual({ round, exitCode: null });
        child.kill('SIGKILL');
        await ended;
        expect(await readdir(folder)).toContain('rows.csv.granary-import');
      }
      const { code, stdout, stderr } = await cli.run(command, { env, cwd: folder });
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      expect(JSON.parse(stdout)).toMatchObject({ written: records, skipped: 0, failed: 0 });
      expect(await readdir(folder)).toEqual(['rows.csv']);
      const { appId, key } = granary.app;
      const path = `/api/apps/${appId}/collections/rows/export?history=true`;
      const { text, isWhole } = await readExport({ url: granary.url, key, path });
      expect(isWhole).toBe(true);
      const versions = text.trim().split('\n');
      expect(versions).toHaveLength(records);
      const numbers = versions.map((line) => (JSON.parse(line) as { document: { n: number } }).document.n);
      expect(new Set(numbers).size).toBe(records);
    } finally {
      await granary.end();
      await cli.remove();
      await rm(folder, { recursive: true, force: true });
    }
  },
  sizedLimitMs(limitMs(300_000)),
);
