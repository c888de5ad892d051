import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { commonConfig, readConfig } from '@granary/shared/config';
import { z } from 'zod';
import { localConfig } from '../config';
import { curlLines } from '../demo-app';
import { resolveDataDir } from '../postgres/data-dir';
import { startStack, type Stack } from './stack';

const stackConfig = localConfig.extend({
  BUS: z.enum(['postgres', 'kafka']).default('kafka'),
  STORE: z.enum(['files', 'minio']).default('minio'),
  DOCKER: z.stringbool().default(false),
  LOG_LEVEL: commonConfig.shape.LOG_LEVEL,
});

/** Columns of the names in front of the lines. */
const nameWidth = 8;

/** Starts the stack, runs until a signal or until something of it ends, and stops what runs, in order. */
async function main(): Promise<void> {
  const ending = new AbortController();
  // They stay: Ctrl-C under npm arrives twice, and the second must not cut the stop short.
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => ending.abort(name));
  // Nobody reads any more.
  process.stdout.on('error', () => ending.abort('EPIPE'));
  const signalled = new Promise<void>((resolve) => ending.signal.addEventListener('abort', () => resolve()));
  try {
    const stack = await start(ending.signal);
    announce(stack);
    const failure = await Promise.race([signalled, stack.failed]).catch((error: unknown) => explain(error));
    say(failure === undefined ? 'Stopping …' : `${failure}\nStopping the rest …`);
    if (failure !== undefined) process.exitCode = 1;
    await stack.stop();
    say(failure === undefined ? 'Everything has stopped.' : `Everything has stopped: ${failure.split('\n')[0]}`);
  } catch (error) {
    if (ending.signal.aborted && error === ending.signal.reason) return;
    console.error(explain(error));
    process.exitCode = 1;
  }
}

async function start(signal: AbortSignal): Promise<Stack> {
  const config = readConfig(stackConfig, process.env);
  // Not where `npm start` keeps its data: there blobs are always files.
  const { dataDir: directory, note } = await resolveDataDir({
    explicit: config.DATA_DIR,
    defaultDir: '.granary-stack',
  });
  if (note) say(note);
  // Containers keep their data in volumes: what lies beside those is kept apart too.
  const dataDir = config.DOCKER ? path.join(directory, 'docker') : directory;
  await mkdir(dataDir, { recursive: true });
  say(`Starting on ${dataDir} …`);
  return startStack({
    dataDir,
    host: config.HOST,
    port: config.PORT,
    operatorKey: config.OPERATOR_KEY,
    bus: config.BUS,
    store: config.STORE,
    docker: config.DOCKER,
    ...{ say, signal },
    sink: (name, line) => console.log(`${name.padEnd(nameWidth)} | ${line}`),
  });
}

function announce({ url, operatorKey, app, parts }: Stack): void {
  say(`Granary is ready at ${url}`);
  say(`  operator key: ${operatorKey}`);
  say(`  demo app: ${app.appId}`);
  say(`  demo app key: ${app.key}`);
  for (const { name, pid, port } of parts) {
    say(`  ${name.padEnd(nameWidth)} port ${port}${pid === undefined ? '' : `, process ${pid}`}`);
  }
  say('\nFive calls to begin with:\n');
  for (const line of curlLines(url, app)) say(`${line}\n`);
}

function say(line: string): void {
  console.log(line);
}

function explain(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

void main();
