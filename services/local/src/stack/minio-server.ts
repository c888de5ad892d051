import { randomBytes } from 'node:crypto';
import { mkdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { exists } from '../postgres/system-user';
import { cacheFolder, installOnce } from './cache';
import { choosePorts } from './ports';
import { withProgress } from './progress';
import { startProgram, untilReady, type LineSink, type Program } from './programs';
import type { Run } from './runs';
import { findGo, isWritable, runTool } from './tools';

/** The newest state that Go's modules offer; releases with a date for a name are not among them. */
const modulePath = 'github.com/minio/minio';
const version = 'v0.0.0-20260212201848-7aac2a2c5b7c';
const folderName = `minio-${version}`;

const readyTimeoutMs = 120_000;
const probeTimeoutMs = 1000;
const stopGraceMs = 10_000;

export interface Minio {
  /** `http://host:port` */
  endpoint: string;
  port: number;
  /** Name and password of its root user. */
  accessKey: string;
  secretKey: string;
  program: Program;
  stop(): Promise<void>;
}

export interface MinioOptions {
  run: Run;
  /** Holds the objects; what is there is used again. */
  directory: string;
  /** To come back where clients know it; otherwise one is chosen. */
  port?: number;
  /** To come back with the keys that clients know; otherwise they are made. */
  keys?: { accessKey: string; secretKey: string };
  sink?: LineSink | undefined;
}

/** Whether MinIO has been built before, so that nothing else is needed. */
export async function isMinioInstalled(): Promise<boolean> {
  return exists(path.join(await cacheFolder(), folderName));
}

/**
 * Builds MinIO into the cache when it is not there, from where Go's settings say, and answers the program's path.
 * Throws a MissingToolError when it has to be built and Go is missing.
 */
export async function prepareMinio(say: (line: string) => void, signal?: AbortSignal): Promise<string> {
  const folder = await installOnce(
    folderName,
    async (staging) => {
      await findGo();
      const env = { ...process.env, ...(await ownCaches(staging, signal)), GOBIN: path.join(staging, 'bin') };
      // Without the tables for debuggers it is a third smaller.
      const args = ['install', '-trimpath', '-ldflags=-s -w', `${modulePath}@${version}`];
      await withProgress(say, 'Building MinIO by Go (once; that takes some minutes)', () =>
        runTool('go', args, { cwd: staging, env, signal }),
      );
      await rename(path.join(staging, 'bin/minio'), path.join(staging, 'minio'));
      for (const name of ['bin', 'go', 'build']) await rm(path.join(staging, name), { recursive: true, force: true });
    },
    signal,
  );
  return path.join(folder, 'minio');
}

/** Starts MinIO on 127.0.0.1, with a root user of its own, and resolves when it can be used. */
export async function startMinio(command: string, options: MinioOptions): Promise<Minio> {
  const { run, directory, sink } = options;
  const data = path.join(directory, 'data');
  await mkdir(data, { recursive: true });
  const port = options.port ?? (await choosePorts(1))[0] ?? 0;
  const { accessKey, secretKey } = options.keys ?? {
    accessKey: randomBytes(10).toString('hex'),
    secretKey: randomBytes(24).toString('base64url'),
  };
  const env = {
    PATH: process.env.PATH,
    // It makes a folder for certificates in its home.
    HOME: directory,
    MINIO_ROOT_USER: accessKey,
    MINIO_ROOT_PASSWORD: secretKey,
    MINIO_BROWSER: 'off',
    MINIO_UPDATE: 'off',
  };
  const args = ['server', data, '--address', `127.0.0.1:${port}`, '--quiet'];
  const program = await startProgram(run, 'minio', command, args, { cwd: directory, env, sink });
  const endpoint = `http://127.0.0.1:${port}`;
  await untilReady(program, readyTimeoutMs, () => isServing(endpoint));
  return { endpoint, port, accessKey, secretKey, program, stop: () => program.stop(stopGraceMs) };
}

/** It calls itself ready before it knows its users, and then answers 503; a stranger is refused once it knows them. */
async function isServing(endpoint: string): Promise<boolean> {
  const statusOf = async (route: string): Promise<number | undefined> => {
    const request = fetch(endpoint + route, { signal: AbortSignal.timeout(probeTimeoutMs) });
    return (await request.catch(() => undefined))?.status;
  };
  return (await statusOf('/minio/health/ready')) === 200 && (await statusOf('/')) === 403;
}

/**
 * Go keeps modules and what it has compiled in caches of the user; one who cannot have them gets caches that are thrown
 * away.
 */
async function ownCaches(staging: string, signal: AbortSignal | undefined): Promise<NodeJS.ProcessEnv> {
  const asked = await runTool('go', ['env', 'GOMODCACHE', 'GOCACHE'], { cwd: staging, signal }).catch(() => '');
  const folders = asked.split('\n').filter((folder) => path.isAbsolute(folder));
  const usable = await Promise.all(folders.map(isWritable));
  if (usable.length === 2 && usable.every(Boolean)) return {};
  const flags = `${process.env.GOFLAGS ?? ''} -modcacherw`.trim();
  const modules = path.join(staging, 'go');
  // Modules are unpacked without leave to write, also for whoever wants to remove them, unless the flag says otherwise.
  return {
    GOPATH: modules,
    GOMODCACHE: path.join(modules, 'mod'),
    GOCACHE: path.join(staging, 'build'),
    GOFLAGS: flags,
  };
}
