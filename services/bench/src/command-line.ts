import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { namesOf, recordOf } from './records';
import { median, table } from './report';
import type { Lengths, Tools } from './tools';

const program = path.join(__dirname, '../../cli/dist/main.js');
const startsOfRound = 10;
const wantedMs = 120;

/** The programs that are started: Node alone, the command line, and a command whose service answers at once. */
const programs = {
  node: ['-e', '0'],
  version: [program, '--version'],
  list: [program, 'collections', 'list'],
};
type ProgramName = keyof typeof programs;

/** Medians of milliseconds from the start of a process to its end. */
type CommandLineResult = Record<ProgramName, number>;

/** Starts the programs in turn, one at a time. */
export async function measureCommandLine(_: Tools, { rounds }: Lengths): Promise<CommandLineResult> {
  const service = createServer((_request, response) => {
    response.writeHead(200, { 'Content-Type': 'application/json' }).end('{"app_id":"bench","collections":[]}');
  });
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  const env = {
    PATH: process.env['PATH'],
    XDG_CONFIG_HOME: path.join(__dirname, 'nowhere'),
    GRANARY_URL: `http://127.0.0.1:${(service.address() as AddressInfo).port}`,
    GRANARY_APP: 'bench',
    GRANARY_APP_KEY: 'app_bench',
  };
  const times = recordOf(namesOf(programs), () => [] as number[]);
  try {
    for (const name of namesOf(programs)) await durationMs(programs[name], env);
    for (let start = 0; start < rounds * startsOfRound; start++) {
      for (const name of namesOf(programs)) times[name].push(await durationMs(programs[name], env));
    }
  } finally {
    service.closeAllConnections();
    service.close();
  }
  return recordOf(namesOf(programs), (name) => median(times[name]));
}

async function durationMs(args: readonly string[], env: NodeJS.ProcessEnv): Promise<number> {
  const startMs = performance.now();
  const child = spawn(process.execPath, args, { env, stdio: 'ignore' });
  const code = await new Promise<number | null>((resolve, reject) => child.on('close', resolve).on('error', reject));
  if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}`);
  return performance.now() - startMs;
}

export function commandLineLines({ node, version, list }: CommandLineResult): string[] {
  const line = (title: string, ms: number) => [title, ms.toFixed(0), (ms - node).toFixed(0)];
  return [
    'The command line: milliseconds from start to end, medians',
    '',
    ...table([
      ['', 'ms', `beyond Node (wanted: ${wantedMs})`],
      line('node -e 0', node),
      line('granary --version', version),
      line('granary collections list', list),
    ]),
  ];
}
