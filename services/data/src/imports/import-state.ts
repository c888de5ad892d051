import { notFound, type ServiceError } from '@granary/shared/errors';
import type { Import } from '@granary/shared/gen/granary/data/v1/Import';
import { parseTicket } from '@granary/shared/ids';
import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import type { App } from '../catalog/app';
import type { KeptRefusal } from '../writes/change-write';
import type { ImportOptions } from './import-options';
import type { ReaderState } from './records/record';

export const IMPORT_NOT_FOUND = 'IMPORT_NOT_FOUND';

/** A place in a file between two records, and what the reader of its format has to know there. */
export interface FilePlace {
  /** Bytes of the file before it. */
  offset: number;
  /** The CRC-32 of those bytes. */
  checksum: number;
  /** Ends of lines among them. */
  lines: number;
  reader: ReaderState;
}

/** An import as it is stored. */
export interface ImportState extends FilePlace {
  ticketId: string;
  appNumber: bigint;
  collection: string;
  options: ImportOptions;
  status: 'open' | 'completed' | 'failed';
  written: number;
  skipped: number;
  failed: number;
  sizeBytes: number | undefined;
  /** Height of its last commit; 0: none. */
  height: bigint;
  error: KeptRefusal | undefined;
  createdAt: Date;
  updatedAt: Date;
  expiresAt: Date;
}

interface ImportRow {
  ticket_id: string;
  app_number: bigint;
  collection: string;
  options_text: string;
  size_bytes: bigint | null;
  status: ImportState['status'];
  position: bigint;
  checksum: bigint;
  lines: bigint;
  reader_state_text: string;
  written: bigint;
  skipped: bigint;
  failed: bigint;
  height: bigint;
  error_text: string | null;
  created_at: Date;
  updated_at: Date;
  expires_at: Date;
}

const columns = sql`ticket_id, app_number, collection, options_text, size_bytes, status, position, checksum, lines,
  reader_state_text, written, skipped, failed, height, error_text, created_at, updated_at, expires_at`;

/** The imports that meet a condition, in the order of `rest`. */
export async function findImports(db: Queryable, condition: Sql, rest: Sql = sql``): Promise<ImportState[]> {
  const found = await rows<ImportRow>(db, sql`select ${columns} from import where ${condition} ${rest}`);
  return found.map(toState);
}

/** Throws IMPORT_NOT_FOUND. */
export async function requireImport(db: Queryable, app: App, ticketId: string): Promise<ImportState> {
  // Text without the form of a ticket needs no look-up.
  const [state] = parseTicket(ticketId)
    ? await findImports(db, sql`ticket_id = ${ticketId} and app_number = ${app.number}`)
    : [];
  if (!state) throw importNotFound();
  return state;
}

const importNotFound = (): ServiceError => notFound(IMPORT_NOT_FOUND, 'There is no such import');

function toState(found: ImportRow): ImportState {
  return {
    ticketId: found.ticket_id,
    appNumber: found.app_number,
    collection: found.collection,
    options: JSON.parse(found.options_text) as ImportOptions,
    status: found.status,
    sizeBytes: found.size_bytes === null ? undefined : Number(found.size_bytes),
    offset: Number(found.position),
    checksum: Number(found.checksum),
    lines: Number(found.lines),
    reader: JSON.parse(found.reader_state_text) as ReaderState,
    written: Number(found.written),
    skipped: Number(found.skipped),
    failed: Number(found.failed),
    height: found.height,
    error: found.error_text === null ? undefined : (JSON.parse(found.error_text) as KeptRefusal),
    createdAt: found.created_at,
    updatedAt: found.updated_at,
    expiresAt: found.expires_at,
  };
}

/** An import as its caller gets it. */
export function toMessage(state: ImportState): Import {
  const { error, sizeBytes } = state;
  return {
    importId: state.ticketId,
    collection: state.collection,
    options: Buffer.from(JSON.stringify(state.options)),
    ...(sizeBytes !== undefined && { sizeBytes: String(sizeBytes) }),
    status: state.status,
    offset: String(state.offset),
    checksum: String(state.checksum),
    lines: String(state.lines),
    written: String(state.written),
    skipped: String(state.skipped),
    failed: String(state.failed),
    height: state.height.toString(),
    error: error
      ? {
          status: error.code,
          reason: error.reason,
          message: error.message,
          detailsJson: Buffer.from(JSON.stringify(error.details)),
        }
      : null,
    createdAt: state.createdAt.toISOString(),
    updatedAt: state.updatedAt.toISOString(),
    expiresAt: state.expiresAt.toISOString(),
    replayed: false,
  };
}
