import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import type { Environment } from '@granary/shared/config';
import { explainStart } from '@granary/shared/start-error';
import { openDataDirectory } from '@granary/local/postgres/data-directory';
import { readyLines } from '@granary/local/start/ready';
import { withPlayMoney } from '@granary/local/start/play-money';
import { readSettings, stackLauncher } from '@granary/local/start/settings';
import { startStack } from './stack';

/** Width of the column with program names in front of the lines. */
const nameWidth = 8;

/** Starts the stack, runs until a signal or until one of its programs ends, then stops all programs in order. */
async function main(environment: Environment): Promise<void> {
  const ending = new AbortController();
  // The handlers stay: Ctrl-C under npm arrives twice, and the second must not interrupt the stop.
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => ending.abort(name));
  // The output is closed.
  process.stdout.on('error', () => ending.abort('EPIPE'));
  const signalled = new Promise<void>((resolve) => ending.signal.addEventListener('abort', () => resolve()));
  try {
    const stack = await start(environment, ending.signal);
    const failure = await Promise.race([signalled, stack.failed]).catch((error: unknown) => explain(error));
    say(failure === undefined ? 'Stopping …' : `${failure}\nStopping the other programs …`);
    if (failure !== undefined) process.exitCode = 1;
    await stack.stop();
    say(failure === undefined ? 'Everything has stopped.' : `Everything has stopped: ${failure.split('\n')[0]}`);
  } catch (error) {
    if (ending.signal.aborted && error === ending.signal.reason) return;
    console.error(explain(error));
    process.exitCode = 1;
  }
}

async function start(environment: Environment, signal: AbortSignal) {
  const { own: config, services, warnings } = readSettings(stackLauncher, environment);
  for (const warning of warnings) console.error(`Warning: ${warning}`);
  // A directory of its own, because `npm start` always stores blobs in files. Containers keep their data in volumes;
  // the files next to those are separate too.
  const beside = config.DOCKER ? 'docker' : '';
  const directory = await openDataDirectory({ explicit: config.DATA_DIR, defaultDir: '.granary-stack', say });
  const dataDir = path.join(directory, beside);
  await mkdir(dataDir, { recursive: true });
  say(`Starting on ${dataDir} …`);
  const stack = await startStack({
    dataDir,
    host: config.HOST,
    port: config.PORT,
    operatorKey: config.OPERATOR_KEY,
    bus: config.BUS,
    store: config.STORE,
    docker: config.DOCKER,
    environment: withPlayMoney(environment),
    say,
    signal,
    sink: (name, line) => console.log(`${name.padEnd(nameWidth)} | ${line}`),
  });
  const parts = stack.parts.map(
    ({ name, pid, port }) => `  ${name.padEnd(nameWidth)} port ${port}${pid === undefined ? '' : `, process ${pid}`}`,
  );
  const { url, operatorKey, app } = stack;
  const { SHOW_KEYS: showKeys, HOST: host } = config;
  const isKeyKept = config.OPERATOR_KEY === undefined;
  const ready = { url, environment: services, host, dataDir, operatorKey, isKeyKept, app, showKeys, parts };
  for (const line of readyLines(ready)) say(line);
  return stack;
}

function say(line: string): void {
  console.log(line);
}

/** An unexpected error is reported with its stack trace. */
function explain(error: unknown): string {
  return explainStart(error) ?? (error instanceof Error ? (error.stack ?? error.message) : String(error));
}

void main(process.env);
