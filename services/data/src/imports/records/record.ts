import type { FieldMessages } from '@granary/shared/errors';

export type ImportFormat = 'ndjson' | 'json' | 'csv';

export type ColumnType = 'string' | 'number' | 'boolean' | 'json';

export interface CsvOptions {
  readonly separator: ',' | ';' | '\t' | '|';
  /** Paths of the columns where the file has no header row; undefined: the first record is the header. */
  readonly columns: readonly string[] | undefined;
  /** Type of a column by its path; a column without one is a string. */
  readonly typeOf: (path: string) => ColumnType;
  /** The value of an empty cell without quotes. One in quotes is the empty text where the column has texts. */
  readonly empty: 'missing' | 'null' | 'string';
}

/** All that has to be remembered between two chunks of one file; plain JSON, stored in a database. */
export interface ReaderState {
  /** The columns of the header row that was read. */
  readonly columns?: readonly string[];
  /** Whether the next byte is inside of a line that is refused, the rest of which is skipped. */
  readonly isSkipping?: true;
  /** ndjson and csv: whether a byte that is no white space was seen, by which files of other formats are told. */
  readonly hasBegun?: true;
  /** json: the token before the next byte, white space apart; absent before `[`. */
  readonly array?: ArrayPlace;
}

export type ArrayPlace = 'opened' | 'element' | 'comma' | 'closed';

export interface Chunk {
  readonly bytes: Buffer;
  /** Offset of the first byte in the file. 0: a byte order mark may stand here. */
  readonly offset: number;
  /** Whether the file ends with this chunk: then the last line needs no line end. */
  readonly isLast: boolean;
  readonly state: ReaderState;
}

/** One record of the file: a document, or why it is none. */
export interface FileRecord {
  /** Offset in the chunk of its first byte. */
  readonly start: number;
  /** Line of its first byte, counted from 0 at the begin of the chunk. */
  readonly line: number;
  /** The JSON text of the document: for ndjson and json a view of the chunk. Undefined where there is a refusal. */
  readonly text?: Buffer;
  readonly refusal?: RecordRefusal;
}

export type RefusalCode =
  'MALFORMED_JSON' | 'MALFORMED_CSV' | 'DOCUMENT_TOO_LARGE' | 'SCHEMA_VIOLATION' | 'VALIDATION_FAILED';

export interface RecordRefusal {
  /** SCHEMA_VIOLATION is of a cell that is not of its type, VALIDATION_FAILED of a header or of another format. */
  readonly code: RefusalCode;
  /** A sentence for people. */
  readonly message: string;
  /** Messages by path, for cells that are not of their type. */
  readonly details?: FieldMessages;
  /** The file cannot be read any further, whatever is to be done with other errors. */
  readonly isFatal?: true;
}

/**
 * Reads the records of a chunk. After each call of `next` the members `position`, `lines` and `state` belong together:
 * a reader of a later chunk that begins at that position, with that state, goes on with the same records.
 */
export interface RecordReader {
  /** The next whole record of the chunk, undefined where there is none (any more), and after a fatal refusal. */
  next(): FileRecord | undefined;
  /**
   * Bytes of the chunk up to the end of the last record, and of line ends, white space and the like that follow once
   * `next` has returned undefined. Fewer than `recordSizeMaxBytes + 2` bytes are left then, and none of the last chunk.
   */
  readonly position: number;
  /** Ends of lines (LF) in the bytes before `position`. */
  readonly lines: number;
  /** The state to remember together with `position`. */
  readonly state: ReaderState;
}

/** Bytes of a record in the file, without its line end. */
export const recordSizeMaxBytes = 1024 * 1024;
