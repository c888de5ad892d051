import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { limitMs } from '@granary/testing/speed';
import type { Granary } from '../support/granary';
import { installPackages } from './generated';

export interface CommandResult {
  code: number | null;
  stdout: string;
  stderr: string;
}

export interface CommandOptions {
  env?: Record<string, string>;
  /** Text for stdin, which ends behind it. */
  input?: string;
  cwd?: string;
  /** The Node that runs it; this one if nothing else is said. */
  node?: string;
}

/** Texts that are typed in a terminal, each once another text is shown, and the width of the terminal. */
interface Dialogue {
  answers?: Array<[string, string]>;
  columns?: number;
}

/** The command line as its users have it: the package, installed into an empty folder, with a home of its own. */
export class CliPackage {
  private constructor(readonly folder: string) {}

  static async install(): Promise<CliPackage> {
    const folder = await mkdtemp(join(tmpdir(), 'granary-cli-'));
    await writeFile(join(folder, 'package.json'), '{"private":true}');
    await installPackages(folder, ['cli']);
    return new CliPackage(folder);
  }

  /** The file that `npx granary` runs. */
  get program(): string {
    return join(this.folder, 'node_modules/.bin/granary');
  }

  /** Starts a command with pipes. */
  start(args: readonly string[], { env = {}, cwd = this.folder, node = process.execPath }: CommandOptions = {}) {
    return spawn(node, [this.program, ...args], { cwd, env: this.environment(env), stdio: 'pipe' });
  }

  /** Runs a command with pipes. */
  async run(args: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
    const child = this.start(args, options);
    child.stdin.on('error', () => {}).end(options.input ?? '');
    return resultOf(child);
  }

  /** Runs a command in a pseudo-terminal. Each answer is typed once the text before it is shown; stdout has it all. */
  async runInTerminal(
    args: readonly string[],
    { node = process.execPath, ...options }: CommandOptions = {},
    dialogue: Dialogue = {},
  ): Promise<CommandResult> {
    return this.programInTerminal([node, this.program, ...args], options, dialogue);
  }

  /** Runs lines of a shell, which find the command line as `granary`; the first one that fails ends them. */
  async runShell(script: string, options: CommandOptions & { isInTerminal?: boolean } = {}): Promise<CommandResult> {
    const shell = ['bash', '-ec', script];
    if (options.isInTerminal) return this.programInTerminal(shell, options);
    const { env = {}, cwd = this.folder } = options;
    const child = spawn(shell[0]!, shell.slice(1), { cwd, env: this.environment(env), stdio: 'pipe' });
    child.stdin.end();
    return resultOf(child);
  }

  private async programInTerminal(
    program: readonly string[],
    { env = {}, cwd = this.folder }: CommandOptions,
    { answers = [], columns = 80 }: Dialogue = {},
  ): Promise<CommandResult> {
    const script = join(__dirname, 'cli/terminal.py');
    const call = [script, String(columns), JSON.stringify(answers), ...program];
    return resultOf(spawn('python3', call, { cwd, env: { ...this.environment(env), TERM: 'xterm' }, stdio: 'pipe' }));
  }

  /** The environment of a command: nothing of the tests but what programs need. */
  private environment(env: Record<string, string>): NodeJS.ProcessEnv {
    const { PATH, TMPDIR } = process.env;
    const path = `${join(this.folder, 'node_modules/.bin')}:${PATH}`;
    return { PATH: path, ...(TMPDIR && { TMPDIR }), HOME: this.folder, ...env };
  }

  async remove(): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** Resolves to the output of a program and its exit code. */
export async function resultOf(child: ChildProcess): Promise<CommandResult> {
  let [stdout, stderr] = ['', ''];
  child.stdout!.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr!.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const timer = setTimeout(() => child.kill('SIGKILL'), limitMs(120_000));
  try {
    const code = await new Promise<number | null>((resolve, reject) => child.on('close', resolve).on('error', reject));
    return { code, stdout, stderr };
  } finally {
    clearTimeout(timer);
  }
}

/** The variables with which a command finds an app. */
export const environmentOf = (
  { url }: Pick<Granary, 'url'>,
  { appId, key }: { appId: string; key: string },
): Record<string, string> => ({ GRANARY_URL: url, GRANARY_APP: appId, GRANARY_APP_KEY: key });
