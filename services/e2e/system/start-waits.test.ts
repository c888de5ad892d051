import type { ChildProcess } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openKeyFile } from '@granary/finance/wallets/keys';
import { describeWith } from '@granary/testing/stack';
import { createLogger } from '@granary/shared/logger';
import { createPool } from '@granary/shared/postgres/pool';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { stopAll } from '@granary/shared/service/lifecycle';
import { choosePorts } from '@granary/local/ports';
import { startOwnMinio } from '../support/own-minio';
import { endAllProcesses, spawnBuilt } from '../support/own-process';

const stops: Array<() => Promise<void>> = [];
afterEach(async () => {
  await endAllProcesses();
  await stopAll(stops.splice(0));
});

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'granary-waits-'));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

/** A service in a process of its own. */
class OwnService {
  private output = '';
  readonly exit: Promise<number | null>;

  private constructor(
    private readonly child: ChildProcess,
    private readonly metricsPort: number,
  ) {
    for (const stream of [child.stdout!, child.stderr!]) {
      stream.setEncoding('utf8').on('data', (chunk: string) => (this.output += chunk));
    }
    this.exit = new Promise((resolve) => child.once('close', resolve));
  }

  static async start(name: string, settings: Record<string, string>, ...args: string[]): Promise<OwnService> {
    const [port = 0, metricsPort = 0] = await choosePorts(2);
    const env = {
      PATH: process.env['PATH'],
      LISTEN: `127.0.0.1:${port}`,
      METRICS_LISTEN: `127.0.0.1:${metricsPort}`,
      INTERNAL_SECRET: 'internal-secret-of-the-tests-0123456789',
      ...settings,
    };
    return new OwnService(await spawnBuilt([name], env, args), metricsPort);
  }

  /** Resolves when `/readyz` has answered so. */
  async answers(status: number, text: string): Promise<void> {
    await eventually(async () => {
      const answer = await fetch(`http://127.0.0.1:${this.metricsPort}/readyz`).catch(() => undefined);
      return answer?.status === status && (await answer.text()) === text;
    });
  }

  /** The messages of the log that say what is waited for. */
  waits(): string[] {
    return this.output.split('\n').filter((line) => line.includes('not ready, and waiting'));
  }

  text(): string {
    return this.output;
  }

  signal(): void {
    this.child.kill('SIGTERM');
  }
}

/** Passes connections to `port` on another one, from `open` on. */
async function laterAt(port: number): Promise<{ port: number; open: () => Promise<void> }> {
  const [at = 0] = await choosePorts(1);
  const server = createServer((client) => {
    const upstream = connect(port, '127.0.0.1');
    client.pipe(upstream).pipe(client);
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      one.on('error', () => other.destroy()).on('close', () => other.destroy());
    }
  });
  const open = async () => {
    await new Promise<void>((resolve) => server.listen(at, '127.0.0.1', resolve));
    stops.push(() => new Promise((resolve) => server.close(() => resolve())));
  };
  return { port: at, open };
}

async function laterDatabase() {
  const url = new URL((await testDatabase()).url);
  const { port, open } = await laterAt(Number(url.port));
  url.host = `127.0.0.1:${port}`;
  return { url: url.href, open };
}

test('a service without its database waits, alive and not ready, with a line in its log, and is ready once it is there', async () => {
  const { url, open } = await laterDatabase();
  const service = await OwnService.start('tasks', { DATABASE_URL: url, DATA_ADDRESS: '127.0.0.1:1' });
  await service.answers(503, 'starting\n');
  await eventually(async () => service.waits().length > 0);
  expect(service.waits()).toHaveLength(1);
  expect(service.waits()[0]).toContain('ECONNREFUSED');
  await open();
  await service.answers(200, 'ready\n');
  service.signal();
  expect(await service.exit).toBe(0);
});

test('SIGTERM ends a service that waits for its database, without an error', async () => {
  const { url } = await laterDatabase();
  const service = await OwnService.start('tasks', { DATABASE_URL: url, DATA_ADDRESS: '127.0.0.1:1' });
  await eventually(async () => service.waits().length > 0);
  service.signal();
  expect(await service.exit).toBe(0);
  expect(service.text()).toContain('stopped before the start was complete');
});

test('SIGTERM ends a service whose database accepts connections and never answers', async () => {
  const [port = 0] = await choosePorts(1);
  let accepted = 0;
  const silent = createServer((socket) => {
    accepted += 1;
    socket.on('error', () => {}).resume();
  });
  await new Promise<void>((resolve) => silent.listen(port, '127.0.0.1', resolve));
  stops.push(() => new Promise((resolve) => silent.close(() => resolve())));
  const DATABASE_URL = `postgres://nobody@127.0.0.1:${port}/none`;
  const service = await OwnService.start('tasks', { DATABASE_URL, DATA_ADDRESS: '127.0.0.1:1' });
  await eventually(async () => accepted > 0);
  service.signal();
  expect(await service.exit).toBe(0);
});

test('a database that does not exist ends the start with a sentence, for only a person can mend it', async () => {
  const url = new URL((await testDatabase()).url);
  url.pathname = '/missing';
  const service = await OwnService.start('tasks', { DATABASE_URL: url.href, DATA_ADDRESS: '127.0.0.1:1' });
  expect(await service.exit).toBe(1);
  expect(service.text()).toContain('database "missing" does not exist. Check DATABASE_URL.');
});

test('with MIGRATIONS=wait a service waits for the command migrate, and takes a newer schema too', async () => {
  const { url: DATABASE_URL } = await testDatabase();
  const settings = { DATABASE_URL, DATA_ADDRESS: '127.0.0.1:1', MIGRATIONS: 'wait' };
  const service = await OwnService.start('tasks', settings);
  await service.answers(503, 'starting\n');
  await eventually(async () => service.waits().length > 0);
  expect(service.waits()[0]).toMatch(
    /The schema of the database lacks \d+ migrations, from tables on: run the command/,
  );
  const migrations = await Promise.all([1, 2].map(() => OwnService.start('tasks', { DATABASE_URL }, 'migrate')));
  expect(await Promise.all(migrations.map(({ exit }) => exit))).toEqual([0, 0]);
  await service.answers(200, 'ready\n');

  const pool = createPool({ url: DATABASE_URL, size: 1, applicationName: 'test', log: createLogger('test', 'silent') });
  await pool.query(
    `insert into migration (source, number, name, checksum) values ('service', 9999, '9999_next.sql', '')`,
  );
  const other = await OwnService.start('tasks', settings);
  await other.answers(200, 'ready\n');
  await pool.query(`update migration set checksum = 'other' where source = 'service' and number = 1`);
  await pool.end();
  const refused = await OwnService.start('tasks', settings);
  expect(await refused.exit).toBe(1);
  expect(refused.text()).toContain('was changed after it had been applied');
});

test('the command migrate waits for a database that cannot be reached, and a signal ends it', async () => {
  const { url: DATABASE_URL, open } = await laterDatabase();
  const migrate = () => OwnService.start('tasks', { DATABASE_URL }, 'migrate');
  const [first, second] = await Promise.all([migrate(), migrate()]);
  await eventually(async () => first.waits().length > 0 && second.waits().length > 0);
  expect(first.waits()[0]).toContain('The database cannot be reached: ');
  second.signal();
  expect(await second.exit).toBe(1);
  expect(second.text()).not.toContain('the schema is up to date');
  await open();
  expect(await first.exit).toBe(0);
  expect(first.text()).toContain('the schema is up to date');
});

test('a service refuses commands that it does not have', async () => {
  const service = await OwnService.start('tasks', {}, 'migrte');
  expect(await service.exit).toBe(1);
  expect(service.text()).toContain('the commands are migrate');
});

test('the command seed of finance makes a key file once, and prints a seed where no file is named', async () => {
  const KEY_FILE = join(directory, 'keys', 'seed');
  const first = await OwnService.start('finance', { KEY_FILE }, 'seed');
  expect([await first.exit, first.text()]).toEqual([0, '']);
  const { fingerprint } = await openKeyFile(KEY_FILE, { create: false });
  const second = await OwnService.start('finance', { KEY_FILE }, 'seed');
  expect([await second.exit, second.text()]).toEqual([1, `The key file ${KEY_FILE} exists: it was left as it is\n`]);
  expect((await openKeyFile(KEY_FILE, { create: false })).fingerprint).toBe(fingerprint);

  const printed = await OwnService.start('finance', {}, 'seed');
  expect(await printed.exit).toBe(0);
  const other = join(directory, 'printed');
  await writeFile(other, printed.text(), { mode: 0o600 });
  expect((await openKeyFile(other, { create: false })).fingerprint).not.toBe(fingerprint);
});

describeWith(describe, 'minio')('the object store', () => {
  test('blobs without its object store waits, and is ready once it is there', async () => {
    const minio = await startOwnMinio();
    stops.push(() => minio.stop());
    const { port, open } = await laterAt(Number(new URL(minio.endpoint).port));
    const [listen = 0] = await choosePorts(1);
    const service = await OwnService.start('blobs', {
      DATABASE_URL: (await testDatabase()).url,
      DATA_ADDRESS: '127.0.0.1:1',
      HTTP_LISTEN: `127.0.0.1:${listen}`,
      OBJECT_STORE: 's3',
      S3_ENDPOINT: `http://127.0.0.1:${port}`,
      S3_BUCKET: 'waits',
      S3_ACCESS_KEY: minio.accessKey,
      S3_SECRET_KEY: minio.secretKey,
    });
    await service.answers(503, 'starting\n');
    await eventually(async () => service.waits().length > 0, 30_000);
    await open();
    await service.answers(200, 'ready\n');
  });
});
