import { spawn } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { limitMs } from '@granary/testing/speed';
import { installPackages, repository, runProgram } from './generated';

const programs = join(__dirname, 'client');

const compilerOptions = {
  strict: true,
  noUncheckedIndexedAccess: true,
  exactOptionalPropertyTypes: true,
  target: 'es2022',
  lib: ['es2023', 'dom', 'dom.iterable'],
  types: ['node'],
  skipLibCheck: true,
  typeRoots: [join(repository, 'node_modules/@types')],
};

/** The client library as its users have it: the package, installed into an empty folder, with programs that use it. */
export class ClientPackage {
  private constructor(readonly folder: string) {}

  /** Packs and installs it, and compiles the programs of `clients/client` against its types. */
  static async install(): Promise<ClientPackage> {
    const installed = new ClientPackage(await mkdtemp(join(tmpdir(), 'granary-client-')));
    const { folder } = installed;
    await writeFile(join(folder, 'package.json'), '{"type":"module","private":true}');
    await installPackages(folder, ['client']);
    for (const name of await readdir(programs)) await copyFile(join(programs, name), join(folder, name));
    for (const name of ['@x402', 'viem']) await installed.link(name);
    await installed.compile({ module: 'nodenext' });
    return installed;
  }

  /** Compiles these programs. Throws with what the compiler found. */
  async compile(options: object, include: readonly string[] = ['*.ts']): Promise<void> {
    const config = { compilerOptions: { ...compilerOptions, ...options }, include };
    await writeFile(join(this.folder, 'tsconfig.json'), JSON.stringify(config));
    const compiler = join(repository, 'node_modules/typescript/bin/tsc');
    await runProgram(process.execPath, [compiler], { cwd: this.folder });
  }

  /** Gives the programs packages of this repository, which a user would install beside the client. */
  private async link(name: string): Promise<void> {
    const place = join(this.folder, 'node_modules', name);
    await mkdir(join(place, '..'), { recursive: true });
    await symlink(join(repository, 'node_modules', name), place);
  }

  /** Runs a program, by this or another Node, which reads `input` as JSON. Answers the JSON in its last line. */
  async run<T>(program: string, input: unknown, node = process.execPath): Promise<T> {
    const child = spawn(node, [`${program}.js`], {
      cwd: this.folder,
      timeout: limitMs(240_000),
      killSignal: 'SIGKILL',
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text) => (output += text));
    child.stdin.on('error', () => {}).end(JSON.stringify(input));
    const code = await new Promise((resolve, reject) => child.on('close', resolve).on('error', reject));
    if (code !== 0) throw new Error(`${program} ended with ${String(code)}:\n${output}`);
    return JSON.parse(output.trim().split('\n').at(-1)!) as T;
  }

  async remove(): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
  }
}
