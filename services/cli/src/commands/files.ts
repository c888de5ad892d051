import { randomBytes } from 'node:crypto';
import { createWriteStream, openAsBlob } from 'node:fs';
import { rename, rm, stat } from 'node:fs/promises';
import { Writable } from 'node:stream';
import type { Command } from 'commander';
import { exitCodes, Failure, UsageError } from '../failure.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { bytesText, ProgressBar } from '../terminal/progress.ts';
import { printObject } from '../terminal/table.ts';
import type { Terminal } from '../terminal/terminal.ts';
import { definitionHelp, objectArgument } from './definition.ts';

interface UploadOptions {
  id?: string;
  metadata?: string;
  type?: string;
}

interface DownloadOptions {
  out?: string;
}

export function addFileCommands(program: Command): void {
  const files = program.command('files').description('files (blobs) of collections');
  files
    .command('upload')
    .description('store a file; prints its id')
    .argument('<collection>')
    .argument('<file>')
    .option('--id <id>', 'a UUID that the collection has no file under; by default the service makes one')
    .option('--metadata <json>', `members of the document that describes it: ${definitionHelp}`)
    .option('--type <type>', 'its content type, such as image/png', 'application/octet-stream')
    .action(action<UploadOptions>(upload));
  files
    .command('download')
    .description('fetch a file')
    .argument('<collection>')
    .argument('<id>')
    .option('--out <file>', 'where to; by default stdout')
    .action(action<DownloadOptions>(download));
  files.command('delete').description('delete a file').argument('<collection>').argument('<id>').action(action(remove));
}

async function upload(call: Invocation<UploadOptions>): Promise<void> {
  const [collection, file] = call.args<[string, string]>();
  const { terminal, signal } = call;
  const { id, type, metadata: argument } = call.options;
  const metadata =
    argument === undefined ? undefined : (await objectArgument(terminal, argument, '{"title": "Emma"}')).text;
  const blob = await fileAt(file, type!);
  const app = await call.app();
  const bar = new ProgressBar(terminal, file);
  const onProgress = (sent: number) => bar.show(sent, blob.size, `${bytesText(sent)} of ${bytesText(blob.size)}`);
  const uploaded = await app
    .blobs(collection)
    .upload(blob, { id, metadata, signal, onProgress })
    .finally(() => bar.end());
  await printObject(terminal, uploaded);
}

/** Throws UsageError where there is no such file. */
async function fileAt(path: string, type: string): Promise<Blob> {
  try {
    if (!(await stat(path)).isFile()) throw new Error('it is not a file');
    return await openAsBlob(path, { type });
  } catch (error) {
    throw new UsageError(`${path} cannot be read: ${(error as Error).message}`);
  }
}

async function download(call: Invocation<DownloadOptions>): Promise<void> {
  const [collection, id] = call.args<[string, string]>();
  const { terminal, signal } = call;
  const { out } = call.options;
  if (out === undefined && process.stdout.isTTY)
    throw new UsageError('stdout is a terminal', 'Name a file by --out, or give the file to a pipe.');
  const app = await call.app();
  const response = await app.blobs(collection).download(id, { signal });
  const bar = new ProgressBar(terminal, out ?? id);
  try {
    if (out === undefined)
      await response.body!.pipeThrough(counted(bar, response)).pipeTo(toStdout(terminal), { signal });
    else await storeFile(response.body!.pipeThrough(counted(bar, response)), out, signal);
  } catch (error) {
    signal.throwIfAborted();
    if ((error as NodeJS.ErrnoException).path !== undefined || (error as NodeJS.ErrnoException).code === 'ENOSPC') {
      throw new Failure(`The file cannot be written: ${(error as Error).message}`);
    }
    throw new Failure(`The download broke off: ${(error as Error).message}`, { exitCode: exitCodes.unreachable });
  } finally {
    bar.end();
  }
}

/** Counts the bytes of a body for a bar. */
function counted(bar: ProgressBar, { headers }: Response): TransformStream<Uint8Array, Uint8Array> {
  const total = Number(headers.get('content-length')) || undefined;
  let received = 0;
  return new TransformStream({
    transform(chunk, controller) {
      received += chunk.byteLength;
      bar.show(received, total, bytesText(received));
      controller.enqueue(chunk);
    },
  });
}

const toStdout = (terminal: Terminal) => new WritableStream<Uint8Array>({ write: (chunk) => terminal.write(chunk) });

/** Stores a body in a file, which appears once it is whole. Anything else, such as a pipe, has it as it comes. */
async function storeFile(body: ReadableStream<Uint8Array>, file: string, signal: AbortSignal): Promise<void> {
  const isPlain = await stat(file).then(
    (stats) => stats.isFile(),
    () => true,
  );
  const write = (path: string, flags: string) =>
    body.pipeTo(Writable.toWeb(createWriteStream(path, { flags })) as WritableStream<Uint8Array>, { signal });
  if (!isPlain) return write(file, 'w');
  const staging = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    await write(staging, 'wx');
    await rename(staging, file);
  } finally {
    await rm(staging, { force: true });
  }
}

async function remove(call: Invocation): Promise<void> {
  const [collection, id] = call.args<[string, string]>();
  const { terminal, signal } = call;
  const app = await call.app();
  await terminal.confirm(`This deletes the file "${id}" of ${collection} in ${app.id}.`, id, signal);
  await app.blobs(collection).delete(id, { signal });
  terminal.say(`The file "${id}" is deleted.`);
}
