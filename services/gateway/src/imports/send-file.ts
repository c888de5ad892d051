import { invalid, ServiceError, type ErrorDetails, type StatusName } from '@granary/shared/errors';
import type { Import } from '@granary/shared/gen/granary/data/v1/Import';
import type { ImportPartRequest } from '@granary/shared/gen/granary/data/v1/ImportPartRequest';
import { newCall, type Call } from '@granary/shared/rpc/types';
import type { Clients } from '../clients/clients';
import { tooLarge } from '../errors/problem';
import type { FileBody } from './file-body';
import { FileWindow } from './file-window';

/**
 * Bytes that are sent to the data service at once. More than a record may have, so that there is always a whole one.
 */
const partBytes = 2 * 1024 * 1024;
/** Time for one part, with its repetitions while a copy of the data service is replaced. */
const partTimeoutMs = 60_000;

/** A file that is being sent to an import. */
export interface SentFile {
  /** Which import it is for, and what its caller may. */
  target: Pick<ImportPartRequest, 'appId' | 'appNumber' | 'importId' | 'isPaid'>;
  body: FileBody;
  /** The import as it is at first. */
  state: Import;
  /** Offset of the first byte of the body in the file: 0 or that of the import. */
  start: number;
  /** Whether the file ends with the body. */
  isComplete: boolean;
  maxBytes: number;
  /** The error for a body that is not the rest of the file whose beginning is stored. */
  otherContent: (state: Import) => ServiceError;
}

/** Sends files part by part to the data service, which says each time how far the file is stored. */
export class FileSender {
  private readonly window: FileWindow;
  private state: Import;
  private hasEnded = false;

  constructor(
    private readonly data: Pick<Clients['data'], 'importPart'>,
    private readonly call: Pick<Call, 'requestId' | 'trace'>,
    private readonly file: SentFile,
  ) {
    const { start, state } = file;
    this.state = state;
    this.window = new FileWindow(start, start === 0 ? 0 : Number(state.checksum));
  }

  /**
   * Resolves to the import once the body is stored; what is behind its last whole record is not, unless the file ends
   * there. Throws the error that has ended the import, PAYLOAD_TOO_LARGE, `otherContent`, and what FileBody throws,
   * after the whole records that came are stored.
   */
  async send(): Promise<Import> {
    for (;;) {
      await this.fill();
      this.passStored();
      const { window, state } = this;
      const isBehind = Number(state.offset) > window.start;
      if (isBehind && !this.hasEnded) continue;
      if (isBehind || (state.status === 'completed' && window.size > 0)) throw this.file.otherContent(state);
      if (state.status === 'failed') throw errorOf(state);
      if (state.status === 'completed') {
        if (this.hasEnded) return state;
        continue;
      }
      if (this.hasEnded && window.size === 0 && !this.file.isComplete) return state;
      const { start } = window;
      await this.file.body.pausing(() => this.sendWindow(this.hasEnded && this.file.isComplete));
      const hasMoved = this.state.status !== 'open' || Number(this.state.offset) !== start;
      if (this.hasEnded && !hasMoved) return this.state;
    }
  }

  /** Reads until there are enough bytes for a part, or the body has ended. */
  private async fill(): Promise<void> {
    const { window, file } = this;
    try {
      while (!this.hasEnded && window.size < partBytes) {
        const chunk = await file.body.read();
        if (!chunk) this.hasEnded = true;
        else window.add(chunk);
        if (window.end > file.maxBytes) throw tooLarge(file.maxBytes);
      }
    } catch (error) {
      // Where that fails too, the client sends them again, as it has to do with those behind them.
      if (isBrokenOff(error)) await this.storeReceived().catch(() => {});
      throw error;
    }
  }

  /** Stores the whole records that came before the request broke off. */
  private async storeReceived(): Promise<void> {
    this.passStored();
    const isNext = this.window.size > 0 && Number(this.state.offset) === this.window.start;
    if (isNext && this.state.status === 'open') await this.sendWindow(false);
  }

  private async sendWindow(isLast: boolean): Promise<void> {
    const { window, file, call } = this;
    const { trace } = call;
    this.state = await this.data.importPart(
      { ...file.target, offset: String(window.start), bytes: window.bytes(), isLast },
      // Not given up with the request: it is stored or not, and the client that comes again should find it stored.
      { ...newCall(call.requestId, partTimeoutMs), ...(trace !== undefined && { trace }) },
    );
    this.passStored();
  }

  /** Drops the bytes that are stored. Throws where those of the file are others. */
  private passStored(): void {
    const { window, state } = this;
    const offset = Number(state.offset);
    window.dropBefore(offset);
    if (offset < window.start) throw this.file.otherContent(state);
    if (offset === window.start && window.checksum !== Number(state.checksum)) throw this.file.otherContent(state);
  }
}

/** Whether a request broke off that may be gone on with; not where its caller may not write any more. */
const isBrokenOff = (error: unknown): boolean =>
  error instanceof ServiceError && ['CANCELLED', 'REQUEST_TIMEOUT', 'OVERLOADED'].includes(error.reason);

/** The error that has ended an import, with what it had done until then. */
function errorOf({ importId, error, written, skipped, failed, height }: Import): ServiceError {
  const { status, reason, message, detailsJson } = error!;
  const details = JSON.parse(detailsJson.toString()) as ErrorDetails;
  const counts = { written: Number(written), skipped: Number(skipped), failed: Number(failed), height: Number(height) };
  return new ServiceError(status as StatusName, reason, message, {
    details: { import_id: importId, ...details, ...counts },
  });
}

/** The error for a file of another content than the one whose beginning an import has stored. */
export function offsetMismatch({ offset, checksum }: Import, wanted?: number): ServiceError {
  const message =
    wanted === undefined
      ? 'The bytes are not those of the file that the import has begun with'
      : `The import is at offset ${offset}, and not at ${wanted}`;
  return new ServiceError('FAILED_PRECONDITION', 'IMPORT_OFFSET_MISMATCH', message, {
    details: { offset: Number(offset), checksum: Number(checksum) },
  });
}

export function importEnded({ status, offset }: Import): ServiceError {
  return new ServiceError('FAILED_PRECONDITION', 'IMPORT_ENDED', `The import has ended: it is ${status}`, {
    details: { status, offset: Number(offset) },
  });
}

/** The offset in `Upload-Offset`. Throws VALIDATION_FAILED. */
export function uploadOffset(header: string | string[] | undefined): number {
  if (typeof header === 'string' && /^\d{1,15}$/.test(header)) return Number(header);
  throw invalid('The headers are not valid', { 'Upload-Offset': ['must be the offset of the first byte in the file'] });
}

/** Whether the file ends with the body, by `Upload-Complete`. Throws VALIDATION_FAILED. */
export function uploadComplete(header: string | string[] | undefined): boolean {
  if (header === '?1' || header === '?0') return header === '?1';
  throw invalid('The headers are not valid', {
    'Upload-Complete': ['must be ?1 where the file ends with this request, else ?0'],
  });
}
