import type { Stats } from 'node:fs';
import { link, open, rename, rm, stat, type FileHandle } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { Failure, UsageError } from '../failure.ts';
import type { ExportRequest } from './export-request.ts';
import { beginning, type Position } from './export-source.ts';
import { otherPlace, readState, removeState, writeState, type TransferState } from './state-file.ts';
import { lock } from './transfer-lock.ts';

/** An export to a file that has begun. */
export interface ExportState extends TransferState {
  request: ExportRequest;
  height: number;
  /** Bytes of the part file that are of whole records. */
  fileBytes: number;
  position: Position;
}

export interface PartFileOptions {
  /** The file may be there already. */
  isForced: boolean;
  /** An export that has begun is forgotten. */
  restarts: boolean;
}

/** The difference of an export that has begun from the one that is wanted; undefined if there is none. */
export function otherExport(state: ExportState, request: ExportRequest, place: { url: string; app: string }) {
  const elsewhere = otherPlace(state, place);
  if (elsewhere !== undefined) return elsewhere;
  const { height, ...wanted } = request;
  if (height !== undefined && height !== state.height) return `it is of height ${state.height}`;
  const names: Partial<Record<keyof ExportRequest, string>> = {
    collection: 'collection',
    hasHistory: '--history',
    hasDeleted: '--deleted',
    escapesFormulas: '--formulas',
    isGzip: '--gzip',
  };
  for (const [name, value] of Object.entries(wanted)) {
    const before = state.request[name as keyof ExportRequest];
    if (isDeepStrictEqual(before ?? undefined, value ?? undefined)) continue;
    const flag = names[name as keyof ExportRequest] ?? `--${name}`;
    return `its ${flag} is ${before === undefined ? 'not named' : JSON.stringify(before)}`;
  }
  return undefined;
}

/** A part file that is open, and where it goes on. */
interface OpenPart {
  handle: FileHandle;
  fileBytes: number;
  position: Position;
  /** Undefined where it begins. */
  height: number | undefined;
}

/**
 * A file that is made under a temporary name, and gets its own one once it is whole. Beside it, while it is made, there
 * is a file that says how far it is, and a lock.
 */
export class PartFile {
  private constructor(
    readonly file: string,
    private readonly place: { url: string; app: string },
    private readonly request: ExportRequest,
    private readonly part: OpenPart,
    private readonly isForced: boolean,
    private readonly release: () => Promise<void>,
  ) {}

  /** The position at which it goes on. */
  get position(): Position {
    return this.part.position;
  }

  /** Undefined where it begins. */
  get height(): number | undefined {
    return this.part.height;
  }

  /** Goes on with an export to this file, or begins one. Throws UsageError and Failure. */
  static async open(
    file: string,
    request: ExportRequest,
    place: { url: string; app: string },
    options: PartFileOptions,
  ): Promise<PartFile> {
    const stats = await statsOf(file);
    if (stats && !stats.isFile()) {
      throw new UsageError(`${file} is no plain file`, 'Name a file; without --out the records go to stdout.');
    }
    const release = await lock(file);
    try {
      await forgetNamedPart(file);
      if (!options.isForced && (await statsOf(file))) throw takenName(file);
      const part = await openedPart(file, request, place, options);
      return new PartFile(file, place, request, part, options.isForced, release);
    } catch (error) {
      await release();
      throw error;
    }
  }

  /** Adds whole records, behind which the export is at `position`. */
  async add(bytes: Buffer, position: Position, height: number): Promise<void> {
    const { part, place, request } = this;
    await writeAll(part.handle, bytes, part.fileBytes);
    await part.handle.datasync();
    part.fileBytes += bytes.length;
    const { fileBytes } = part;
    await writeState(stateOf(this.file), { version: 1, ...place, request, height, fileBytes, position } as ExportState);
  }

  /** Adds what is behind the last record, and gives the file its name. Throws UsageError where that is taken by now. */
  async finish(end: Buffer): Promise<void> {
    const { file, part } = this;
    await writeAll(part.handle, end, part.fileBytes);
    await part.handle.datasync();
    await part.handle.close();
    await (this.isForced ? rename(partOf(file), file) : nameNew(file));
    await removePart(file);
    await this.release();
  }

  /** Keeps what is there for a later call; nothing is kept where no record has come. */
  async close(): Promise<void> {
    await this.part.handle.close();
    if (this.part.fileBytes === 0) await rm(partOf(this.file), { force: true });
    await this.release();
  }
}

async function openedPart(
  file: string,
  request: ExportRequest,
  place: { url: string; app: string },
  { restarts }: PartFileOptions,
): Promise<OpenPart> {
  const state = restarts ? undefined : await readState<ExportState>(stateOf(file));
  const partBytes = (await statsOf(partOf(file)))?.size;
  if (!state || partBytes === undefined || partBytes < state.fileBytes) {
    const handle = await openPart(partOf(file), 'w');
    await removeState(stateOf(file));
    return { handle, fileBytes: 0, position: beginning, height: undefined };
  }
  const reason = otherExport(state, request, place);
  if (reason !== undefined) {
    throw new Failure(`${partOf(file)} is a part of another export: ${reason}`, {
      nextStep: '--restart begins anew, and the same command as before goes on with it.',
    });
  }
  const { fileBytes, position, height } = state;
  const handle = await openPart(partOf(file), 'r+');
  await handle.truncate(fileBytes);
  return { handle, fileBytes, position, height };
}

/** A command that was killed may have given the file its name, and left the part of it: both are one file then. */
async function forgetNamedPart(file: string): Promise<void> {
  const [whole, part] = [await statsOf(file), await statsOf(partOf(file))];
  if (whole && part && whole.ino === part.ino && whole.dev === part.dev) await removePart(file);
}

/** Gives the file its name, unless another one has it by now. */
async function nameNew(file: string): Promise<void> {
  try {
    await link(partOf(file), file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw takenName(file);
    // This file system has no links.
    if (await statsOf(file)) throw takenName(file);
    await rename(partOf(file), file);
  }
}

const takenName = (file: string): UsageError => new UsageError(`${file} is there already`, '--force replaces it.');

async function writeAll(handle: FileHandle, bytes: Buffer, position: number): Promise<void> {
  for (let written = 0; written < bytes.length;) {
    const { bytesWritten } = await handle.write(bytes, written, bytes.length - written, position + written);
    written += bytesWritten;
  }
}

export const partOf = (file: string): string => `${file}.part`;
export const stateOf = (file: string): string => `${file}.granary-export`;

/** Forgets an export that has begun. */
async function removePart(file: string): Promise<void> {
  await rm(partOf(file), { force: true });
  await removeState(stateOf(file));
}

async function openPart(file: string, flags: 'w' | 'r+'): Promise<FileHandle> {
  try {
    return await open(file, flags);
  } catch (error) {
    throw new Failure(`${file} cannot be written: ${(error as Error).message}`);
  }
}

/** Undefined where there is no such file. */
async function statsOf(file: string): Promise<Stats | undefined> {
  try {
    return await stat(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new Failure(`${file} cannot be read: ${(error as Error).message}`);
  }
}
