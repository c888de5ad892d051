import type { ExportPageResponse } from '@granary/shared/gen/granary/data/v1/ExportPageResponse';
import { Columns, sampledColumns, schemaColumns } from './columns';
import { CsvWriter } from './csv';
import type { ExportFormat, ExportRequest } from './export-request';

/** Writes the documents of an export in its format. */
export interface FormatWriter {
  /** Bytes of documents that are written in one turn of the event loop. */
  partBytes: number;
  head(): Buffer;
  /** Some lines, each the JSON text of a document. */
  part(lines: Buffer): Buffer;
  end(): Buffer;
  /** Bytes between two parts that readers pass over; undefined where they would take everything for a document. */
  heartbeat: Buffer | undefined;
  /** Fields of the documents so far that have no place in the format. */
  omittedFields(): string[];
  /** Sentences about columns of the request that no document so far has a value for. */
  hints(fields: readonly string[]): string[];
}

export const contentTypes: Readonly<Record<ExportFormat, string>> = {
  ndjson: 'application/x-ndjson; charset=utf-8',
  json: 'application/json; charset=utf-8',
  csv: 'text/csv; charset=utf-8; header=present',
};

const nothing = Buffer.alloc(0);
const partBytes = 64 * 1024;
/** Small documents may have a cell for each of many columns, so that a part has fewer bytes of them. */
const partBytesOfColumns = 400_000;

/** The writer for an export whose first page is known. */
export function writerFor(request: ExportRequest, first: ExportPageResponse): FormatWriter {
  switch (request.format) {
    case 'ndjson':
      return { ...plain, part: (lines) => lines };
    case 'json':
      return jsonWriter();
    case 'csv':
      return csvWriter(request, first);
  }
}

const plain = {
  partBytes,
  head: () => nothing,
  end: () => nothing,
  heartbeat: Buffer.from('\n'),
  omittedFields: () => [],
  hints: () => [],
};

function jsonWriter(): FormatWriter {
  let before = '[\n';
  return {
    ...plain,
    part: (lines) => {
      // A byte in each character: line feeds are found fastest so.
      const text = before + lines.toString('latin1', 0, lines.length - 1).replaceAll('\n', ',\n');
      before = ',\n';
      return Buffer.from(text, 'latin1');
    },
    end: () => Buffer.from(before === '[\n' ? '[]\n' : '\n]\n'),
  };
}

function csvWriter(request: ExportRequest, first: ExportPageResponse): FormatWriter {
  const columns = new Columns(request.columns ?? chosenColumns(request, first));
  const csv = new CsvWriter(columns, request.escapesFormulas);
  return {
    partBytes: Math.min(partBytes, Math.ceil(partBytesOfColumns / columns.names.length)),
    head: () => csv.head(),
    part: (lines) => csv.rows(lines),
    end: () => nothing,
    // An empty line is a row for some readers.
    heartbeat: undefined,
    // Who names columns knows what is left out, and who names none cannot misspell one.
    omittedFields: () => (request.columns ? [] : columns.omittedFields),
    hints: (fields) => (request.columns ? columns.hints(fields) : []),
  };
}

/** Whether columns are those of documents: a selection knows more of what there is to come than the schema. */
export const samplesDocuments = (
  { select, columns }: Pick<ExportRequest, 'select'> & Partial<Pick<ExportRequest, 'columns'>>,
  { fields }: Pick<ExportPageResponse, 'fields'>,
): boolean => columns === undefined && (fields.length === 0 || select.length > 0);

/** The columns of the fields of the schema, else of those of the first documents. */
function chosenColumns(
  { select, hasHistory, hasDeleted }: ExportRequest,
  { fields, lines }: ExportPageResponse,
): string[] {
  if (samplesDocuments({ select }, { fields })) return lines.length === 0 ? ['id'] : sampledColumns(lines);
  const names = new Set(['id', ...schemaColumns(fields)]);
  if (!hasHistory) return [...names, ...(hasDeleted && !names.has('deleted') ? ['deleted'] : [])];
  return [...versionColumns, ...[...names.add('deleted')].map((field) => `document.${field}`)];
}

/** The members of a version beside its document. */
const versionColumns = ['id', 'version', 'height', 'at', 'deleted'];
