import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { builtProgram, forkProgram } from '@granary/testing/programs';

/** Every child of this suite that has not ended yet, so that a test that timed out leaves nothing running. */
const children = new Set<ChildProcess>();

/** Starts a built program, see `builtProgram`; what it prints can be read from `stdout`. */
export async function spawnBuilt(
  [name, program]: Parameters<typeof builtProgram>,
  env: NodeJS.ProcessEnv = process.env,
  args: readonly string[] = [],
): Promise<ChildProcess> {
  return spawnProgram(await builtProgram(name, program), env, args);
}

function spawnProgram(file: string, env: NodeJS.ProcessEnv, args: readonly string[] = []): ChildProcess {
  return track(spawn(process.execPath, [file, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] }));
}

/** Starts a TypeScript file of the tests, with a channel for messages between the two processes. */
export async function forkTracked(file: string): Promise<ChildProcess> {
  return track(await forkProgram(file, [], { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] }));
}

/** Copies its errors to ours; a child that shared our descriptor would keep jest open for as long as it lives. */
export function track<T extends ChildProcess>(child: T): T {
  children.add(child);
  child.stderr?.on('data', (bytes: Buffer) => process.stderr.write(bytes));
  child.once('exit', () => children.delete(child));
  return child;
}

/** Resolves when the child has ended. */
export function endProcess(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => {
    child.once('exit', () => resolve());
    child.kill(signal);
  });
}

/** A zombie, which only awaits its reaper, runs no more. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return process.platform !== 'linux' || !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** For `afterAll`: ends whatever is left, also of tests that timed out while they were starting a process. */
export async function endAllProcesses(): Promise<void> {
  await Promise.all([...children].map((child) => endProcess(child, 'SIGKILL')));
}

/** `npm start` without the build: all of Granary in a process of its own. */
export class OwnGranary {
  private constructor(
    private readonly child: ChildProcess,
    readonly url: string,
    readonly app: { appId: string; key: string },
    /** The lines that it has printed. */
    readonly output: readonly string[],
  ) {}

  /** `program` is that of another release. */
  static async start(dataDir: string, settings: Record<string, string> = {}, program?: string): Promise<OwnGranary> {
    const env = { ...process.env, PORT: '0', DATA_DIR: dataDir, LOG_LEVEL: 'error', ...settings };
    const child = program === undefined ? await spawnBuilt(['local'], env) : spawnProgram(program, env);
    const lines: string[] = [];
    const url = await new Promise<string>((resolve, reject) => {
      createInterface({ input: child.stdout! }).on('line', (line) => {
        lines.push(line);
        const ready = /^Granary is ready at (\S+)/.exec(line);
        if (ready) resolve(ready[1]!);
      });
      child.once('exit', (code) => reject(new Error(`it ended with ${code} before it was ready: ${lines.join('\n')}`)));
    });
    const app = JSON.parse(await readFile(join(dataDir, 'demo-app.json'), 'utf8')) as { appId: string; key: string };
    return new OwnGranary(child, url, app, lines);
  }

  /** Resident memory of the process, without its Postgres. Linux only. */
  residentBytes(): number {
    const found = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${this.child.pid}/status`, 'utf8'));
    return Number(found?.[1]) * 1024;
  }

  /** Sends a signal that does not end it. */
  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  end(signal: NodeJS.Signals): Promise<void> {
    return endProcess(this.child, signal);
  }
}

const root = join(__dirname, '../../..');

/** What the two scripts run once they have built it, the stack without Kafka and MinIO; or the arguments of Node. */
type Way = 'npm start' | 'npm run stack' | { args: string[]; cwd: string };

/** What a person has on the terminal who starts Granary: its lines, and how it ended. */
export class OwnStart {
  private text = '';
  private addressText = '';
  private demo = { appId: '', key: '' };
  readonly exit: Promise<number | null>;

  private constructor(private readonly child: ChildProcess) {
    for (const stream of [child.stdout!, child.stderr!]) {
      stream.setEncoding('utf8').on('data', (chunk: string) => (this.text += chunk));
    }
    this.exit = new Promise((resolve) => child.once('close', resolve));
  }

  /** Starts it on `dataDir`, on any free port, with none of the settings of this process. */
  static async launch(way: Way, dataDir: string, settings: Record<string, string> = {}): Promise<OwnStart> {
    const { PATH, HOME, XDG_CACHE_HOME, TMPDIR } = process.env;
    const ofStack = way === 'npm run stack' ? { BUS: 'postgres', STORE: 'files' } : {};
    const env = { PATH, HOME, XDG_CACHE_HOME, TMPDIR, PORT: '0', DATA_DIR: dataDir, ...ofStack, ...settings };
    const program = await builtProgram(way === 'npm run stack' ? 'stack' : 'local');
    const { args, cwd } = typeof way === 'object' ? way : { args: [program], cwd: root };
    const child = spawn(process.execPath, args, { env, cwd, stdio: ['ignore', 'pipe', 'pipe'] });
    children.add(child);
    child.once('exit', () => children.delete(child));
    return new OwnStart(child);
  }

  /** The same, once it is ready. */
  static async ready(...args: Parameters<typeof OwnStart.launch>): Promise<OwnStart> {
    const started = await OwnStart.launch(...args);
    while (!started.text.includes('Five calls')) {
      const code = await Promise.race([started.exit, delay(50)]);
      if (code !== undefined) throw new Error(`it ended with ${code} before it was ready:\n${started.text}`);
    }
    started.addressText = /^Granary is ready at (\S+)$/m.exec(started.text)![1]!;
    started.demo = JSON.parse(await readFile(join(args[1], 'demo-app.json'), 'utf8')) as typeof started.demo;
    return started;
  }

  get url(): string {
    return this.addressText;
  }

  /** The demo app. */
  get app(): { appId: string; key: string } {
    return this.demo;
  }

  /** Both outputs, as far as they have come. */
  output(): string {
    return this.text;
  }

  end(signal: NodeJS.Signals): Promise<void> {
    return endProcess(this.child, signal);
  }
}
