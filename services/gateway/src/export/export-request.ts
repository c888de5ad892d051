/** The forms in which documents are exported. */
export type ExportFormat = 'ndjson' | 'json' | 'csv';

/** A request for an export, with its defaults filled in. */
export interface ExportRequest {
  appId: string;
  collection: string;
  format: ExportFormat;
  /** Undefined: the last commit. */
  height: number | undefined;
  /** The export goes on behind this document; with history behind this version of it, where one is named. */
  after: { id: string; version: string } | undefined;
  /** JSON texts; empty: everything. */
  find: Buffer;
  select: Buffer;
  hasHistory: boolean;
  hasDeleted: boolean;
  /** The columns of CSV, as dotted paths; undefined: those of the schema, else of the first documents. */
  columns: readonly string[] | undefined;
  /** Whether texts that a spreadsheet would take for formulas get an apostrophe before them. */
  escapesFormulas: boolean;
}
