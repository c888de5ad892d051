import { open, rename, rm, stat, type FileHandle } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { Failure, UsageError } from '../failure.ts';
import type { ExportRequest } from './export-request.ts';
import { beginning, type Position } from './export-source.ts';
import { OtherTransfer, otherPlace, readState, removeState, writeState, type TransferState } from './state-file.ts';

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

/** Why an export that has begun is not the one that is wanted; undefined where it is. */
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

/**
 * A file that is made under a temporary name, and gets its own one once it is whole. Beside it, while it is made, there
 * is a file that says how far it is.
 */
export class PartFile {
  private constructor(
    readonly file: string,
    private readonly handle: FileHandle,
    private readonly place: { url: string; app: string },
    private readonly request: ExportRequest,
    private fileBytes: number,
    /** Where it goes on. */
    readonly position: Position,
    /** Undefined where it begins. */
    readonly height: number | undefined,
  ) {}

  /** Goes on with an export to this file, or begins one. Throws UsageError and Failure. */
  static async open(
    file: string,
    request: ExportRequest,
    place: { url: string; app: string },
    { isForced, restarts }: PartFileOptions,
  ): Promise<PartFile> {
    if (!isForced && (await sizeOf(file)) !== undefined) {
      throw new UsageError(`${file} is there already`, '--force replaces it.');
    }
    const state = restarts ? undefined : await readState<ExportState>(stateOf(file));
    const partBytes = await sizeOf(partOf(file));
    if (!state || partBytes === undefined || partBytes < state.fileBytes) {
      const handle = await openPart(partOf(file), 'w');
      await removeState(stateOf(file));
      return new PartFile(file, handle, place, request, 0, beginning, undefined);
    }
    const reason = otherExport(state, request, place);
    if (reason !== undefined) {
      throw new OtherTransfer(`${partOf(file)} is a part of another export: ${reason}`, {
        nextStep: '--restart begins anew, and the same command as before goes on with it.',
      });
    }
    const handle = await openPart(partOf(file), 'r+');
    await handle.truncate(state.fileBytes);
    return new PartFile(file, handle, place, request, state.fileBytes, state.position, state.height);
  }

  /** Adds whole records, behind which the export is at `position`. */
  async add(bytes: Buffer, position: Position, height: number): Promise<void> {
    for (let written = 0; written < bytes.length;) {
      const { bytesWritten } = await this.handle.write(
        bytes,
        written,
        bytes.length - written,
        this.fileBytes + written,
      );
      written += bytesWritten;
    }
    await this.handle.datasync();
    this.fileBytes += bytes.length;
    const { place, request, fileBytes } = this;
    await writeState(stateOf(this.file), { version: 1, ...place, request, height, fileBytes, position } as ExportState);
  }

  /** Adds what is behind the last record, and gives the file its name. */
  async finish(end: Buffer): Promise<void> {
    await this.handle.write(end, 0, end.length, this.fileBytes);
    await this.handle.datasync();
    await this.handle.close();
    await rename(partOf(this.file), this.file);
    await removeState(stateOf(this.file));
  }

  /** Keeps what is there for a later call; nothing is kept where no record has come. */
  async close(): Promise<void> {
    await this.handle.close();
    if (this.fileBytes === 0) await rm(partOf(this.file), { force: true });
  }
}

export const partOf = (file: string): string => `${file}.part`;
export const stateOf = (file: string): string => `${file}.granary-export`;

/** Forgets an export that has begun. */
export async function removePart(file: string): Promise<void> {
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

/** The size of a file in bytes; undefined where there is none. */
export async function sizeOf(file: string): Promise<number | undefined> {
  try {
    return (await stat(file)).size;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new Failure(`${file} cannot be read: ${(error as Error).message}`);
  }
}
