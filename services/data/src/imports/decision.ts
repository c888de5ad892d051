import type { ErrorDetails } from '@granary/shared/errors';
import { ALREADY_EXISTS } from '../catalog/names';
import type { KeptRefusal } from '../writes/change-write';
import { idOf, type ImportBatch, type ImportRecord } from './import-batch';
import type { ImportOptions } from './import-options';
import type { FilePlace, ImportState } from './import-state';

/** Records that may fail before an import that goes on after errors is given up. */
export const failedMax = 10_000;
/** Errors of an import that are kept. */
export const keptErrorsMax = 1_000;

/** The outcome of the records of a batch. */
export interface Decision {
  /** The records that are written, in their order. */
  accepted: readonly ImportRecord[];
  skipped: number;
  /** The records that failed, and are passed over. */
  failed: readonly FailedRecord[];
  /** How far the file is done with it. */
  to: FilePlace;
  /** Why the import ends there. */
  end: KeptRefusal | undefined;
}

export interface FailedRecord {
  record: ImportRecord;
  error: KeptRefusal;
}

/** Decides about the records of a batch, by whether there are documents with their ids. */
export function decide(
  { records, to }: Pick<ImportBatch, 'records' | 'to'>,
  { options, failed: failedBefore }: Pick<ImportState, 'options' | 'failed'>,
  isPresent: (id: string) => boolean,
): Decision {
  const { mode, on_error: onError } = options;
  const accepted: ImportRecord[] = [];
  const failed: FailedRecord[] = [];
  const ids = new Set<string>();
  let skipped = 0;
  for (const record of records) {
    const { document } = record;
    const isTaken = document !== undefined && mode !== 'upsert' && (ids.has(document.id) || isPresent(document.id));
    if (document && isTaken && mode === 'skip') {
      skipped += 1;
      continue;
    }
    const error = document && isTaken ? existsAlready(document.id) : record.refusal;
    if (error) {
      const reason = endingReason(record, onError, failedBefore + failed.length);
      if (reason !== undefined) {
        return { accepted, skipped, failed, to: record.before, end: endOf(record, error, reason) };
      }
      failed.push({ record, error });
      continue;
    }
    if (!document) throw new Error(`the record of line ${record.line} was not prepared`);
    ids.add(document.id);
    accepted.push(record);
  }
  return { accepted, skipped, failed, to, end: undefined };
}

type EndingReason = 'record' | 'tooMany';

function endingReason(
  { isFatal }: ImportRecord,
  onError: ImportOptions['on_error'],
  failedCount: number,
): EndingReason | undefined {
  if (isFatal || onError === 'abort') return 'record';
  return failedCount >= failedMax ? 'tooMany' : undefined;
}

/** The error that an import ends with: that of its record, with the place of that. */
function endOf(record: ImportRecord, error: KeptRefusal, reason: EndingReason): KeptRefusal {
  const id = idOf(record);
  const place = { line: record.line, offset: record.offset, ...(id !== undefined && { id }) };
  if (reason === 'tooMany') {
    const message = `More than ${failedMax} records failed; the last one in line ${record.line}: ${error.message}`;
    return { code: 'FAILED_PRECONDITION', reason: 'TOO_MANY_ERRORS', message, details: place };
  }
  const fields = boundedDetails(error.details);
  const details = { ...place, ...(Object.keys(fields).length > 0 && { fields }) };
  return { ...error, message: `Line ${record.line}: ${error.message}`, details };
}

const existsAlready = (id: string): KeptRefusal => ({
  code: 'ALREADY_EXISTS',
  reason: ALREADY_EXISTS,
  message: 'There is a document with this id already',
  details: { id: [`${id} is the id of another document`] },
});

/** Bytes of the details of an error that are kept, at most: its message names the first of them. */
const detailsMaxBytes = 4_096;

const boundedDetails = (details: ErrorDetails): ErrorDetails =>
  JSON.stringify(details).length > detailsMaxBytes ? {} : details;

/** The JSON text of an error of a record, as it is kept and answered. */
export function errorText({ record, error: { reason, message, details } }: FailedRecord): string {
  const id = idOf(record);
  return JSON.stringify({
    line: record.line,
    offset: record.offset,
    code: reason,
    ...(id !== undefined && { id }),
    error: message,
    details: boundedDetails(details),
  });
}
