import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { access, constants } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { StartError } from '@granary/shared/start-error';

const run = promisify(execFile);

const outputMaxBytes = 64 * 1024 * 1024;

/** A tool of the machine is missing or too old; the message names it and its purpose. */
export class MissingToolError extends StartError {}

export interface Java {
  command: string;
  /** The complete version output, to distinguish Java installations. */
  version: string;
}

const javaNeeded = 'Kafka needs Java 17 or newer (JAVA_HOME, or the command java)';
const mavenNeeded = 'Kafka is fetched by Maven 3.6 or newer (the command mvn)';
const pythonNeeded =
  'Generated clients are tested with Python 3.11 or newer and its modules venv and ensurepip (the command python3)';
export const minioNeedsGo = 'MinIO is built by Go 1.21 or newer (the command go)';

/** Finds the Java for Kafka. Throws a MissingToolError. */
export async function findJava(env: NodeJS.ProcessEnv = process.env): Promise<Java> {
  const ofHome = env.JAVA_HOME ? path.join(env.JAVA_HOME, 'bin/java') : undefined;
  const command = ofHome !== undefined && existsSync(ofHome) ? ofHome : 'java';
  // Java prints its version on the error output.
  const version = (await ask(command, ['-version'], env, `Java is missing: ${javaNeeded}.`)).stderr;
  const major = Number(/version "(\d+)/.exec(version)?.[1]);
  if (!(major >= 17)) throw new MissingToolError(`Java is too old or unknown: ${javaNeeded}.`);
  return { command, version };
}

/** Checks that Maven is installed. Throws a MissingToolError. */
export async function findMaven(env: NodeJS.ProcessEnv = process.env): Promise<void> {
  await ask('mvn', ['--version'], env, `Maven is missing: ${mavenNeeded}.`);
}

/**
 * Checks for a Go that can fetch the toolchains that modules require. Throws a MissingToolError with what it is
 * `needed` for.
 */
export async function findGo(needed: string, env: NodeJS.ProcessEnv = process.env): Promise<void> {
  const { stdout } = await ask('go', ['version'], env, `Go is missing: ${needed}.`);
  const [, major, minor] = /go(\d+)\.(\d+)/.exec(stdout) ?? [];
  if (Number(major) < 1 || (Number(major) === 1 && Number(minor) < 21)) {
    throw new MissingToolError(`Go is too old: ${needed}.`);
  }
}

/** Finds the Python for the tools of the generated-client tests. Throws a MissingToolError. */
export async function findPython(env: NodeJS.ProcessEnv = process.env): Promise<{ command: string; version: string }> {
  const command = 'python3';
  const program = 'import sys, venv, ensurepip; print(sys.version_info.major, sys.version_info.minor, sys.version)';
  const { stdout } = await ask(command, ['-c', program], env, `Python is missing: ${pythonNeeded}.`);
  const [major, minor] = stdout.split(' ').map(Number) as [number, number];
  if (major !== 3 || minor < 11) throw new MissingToolError(`Python is too old: ${pythonNeeded}.`);
  return { command, version: stdout.trim() };
}

/** The path of a command; undefined where no folder of PATH has it. */
export async function findCommand(name: string, env: NodeJS.ProcessEnv = process.env): Promise<string | undefined> {
  for (const folder of (env.PATH ?? '').split(path.delimiter)) {
    const file = path.join(folder, name);
    if (!path.isAbsolute(file)) continue;
    const isExecutable = await access(file, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isExecutable) return file;
  }
  return undefined;
}

/** Runs a tool to its end; `signal` aborts it. Throws an Error with the end of its output. */
export async function runTool(
  command: string,
  args: string[],
  options: { cwd: string; env?: NodeJS.ProcessEnv; signal: AbortSignal | undefined },
): Promise<string> {
  try {
    const { stdout } = await run(command, args, { ...options, maxBuffer: outputMaxBytes });
    return stdout;
  } catch (error) {
    options.signal?.throwIfAborted();
    const { stdout = '', stderr = '', message } = error as Error & { stdout?: string; stderr?: string };
    const output = `${stdout}${stderr}`.trim().slice(-2000) || message;
    throw new Error(`${path.basename(command)} ${args[0]} failed:\n${output}`, { cause: error });
  }
}

/** Whether files can be created in the folder, or in its nearest existing parent. */
export async function isWritable(directory: string): Promise<boolean> {
  for (let folder = directory; ; folder = path.dirname(folder)) {
    try {
      await access(folder, constants.W_OK | constants.X_OK);
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || folder === path.dirname(folder)) return false;
    }
  }
}

async function ask(
  command: string,
  args: string[],
  env: NodeJS.ProcessEnv,
  missing: string,
): Promise<{ stdout: string; stderr: string }> {
  try {
    return await run(command, args, { env, cwd: '/' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw new MissingToolError(missing, { cause: error });
    throw new MissingToolError(`${missing} ${command} is installed but fails: ${(error as Error).message.trim()}`, {
      cause: error,
    });
  }
}
