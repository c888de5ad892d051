import { chmod, mkdir, rm } from 'node:fs/promises';
import { writeFileSync } from 'node:fs';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { superuserUrl, testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { describeWithSmallDisk, mountSmallDisk, type SmallDisk } from '@granary/testing/small-disk';
import { newApp, randomText, send, transports } from '../support/granary';
import { startGranary } from '../support/own-granary';

const mebibyte = 1024 * 1024;
const run = promisify(execFile);

async function asSuperuser(...statements: string[]): Promise<void> {
  const client = new Client({ connectionString: superuserUrl() });
  await client.connect();
  try {
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.end();
  }
}

/** The user that the run's Postgres has its files as. */
async function ownerOfPostgres(): Promise<string> {
  const client = new Client({ connectionString: superuserUrl() });
  await client.connect();
  try {
    const { rows } = await client.query<{ directory: string }>(
      `select setting as directory from pg_settings where name = 'data_directory'`,
    );
    return (await run('stat', ['-c', '%u:%g', rows[0]!.directory])).stdout.trim();
  } finally {
    await client.end();
  }
}

describeWithSmallDisk(describe).each(transports)(
  'a database on a full disk that its service cannot see (%s)',
  (transport) => {
    let disk: SmallDisk;
    let url: string;
    const tablespace = `small_${randomText(6)
      .toLowerCase()
      .replace(/[^a-z0-9]/g, 'x')}`;
    beforeAll(async () => {
      disk = await mountSmallDisk(120 * mebibyte);
      const directory = join(disk.directory, 'space');
      await mkdir(directory);
      await run('chown', [await ownerOfPostgres(), directory]);
      await chmod(directory, 0o700);
      writeFileSync(join(disk.directory, 'ballast'), Buffer.alloc(50 * mebibyte, 1));
      ({ url } = await testDatabase());
      const name = new URL(url).pathname.slice(1);
      await asSuperuser(
        `create tablespace ${tablespace} location '${directory}'`,
        `alter database ${name} set tablespace ${tablespace}`,
      );
    });
    afterAll(async () => {
      await asSuperuser(
        `drop database ${new URL(url).pathname.slice(1)} with (force)`,
        `drop tablespace ${tablespace}`,
      );
      await disk.unmount();
    });

    test('on full remote storage writes get 507 once one has failed, reads work, and writes recover without a restart', async () => {
      const granary = await startGranary(transport, { databaseUrls: { data: url } });
      const statusOf = async () => (await send<{ status: string }>(granary.url, 'GET', '/health')).body.status;
      try {
        const app = await newApp(granary);
        let stored = 0;
        const store = async () => {
          const data = Array.from({ length: 50 }, () => ({ padding: randomText(15_000) }));
          const answer = await app.call('POST', '/store', { root: `${app.appId}::writes`, data });
          if (answer.status === 202) stored += data.length;
          else
            expect([answer.status, answer.body]).toEqual([
              507,
              { error: 'The storage is full', code: 'STORAGE_FULL', details: {} },
            ]);
          return answer.status;
        };
        await eventually(async () => (await store()) === 507, 60_000);
        await eventually(async () => (await statusOf()) === 'unhealthy');
        for (let n = 0; n < 10; n++) expect(await store()).toBe(507);
        expect((await app.list('writes', { limit: 1 })).body.total).toBe(stored);
        expect((await send(granary.url, 'GET', '/readyz')).status).toBe(200);

        await rm(join(disk.directory, 'ballast'));
        await eventually(async () => (await store()) === 202);
        await eventually(async () => (await statusOf()) === 'healthy');
        expect((await app.list('writes', { limit: 1 })).body.total).toBe(stored);
      } finally {
        await granary.stop();
      }
    });
  },
);
