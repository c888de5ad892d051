import type { PreparedDocument } from '../documents/parser';
import type { KeptRefusal } from '../writes/change-write';
import { decide, errorText, failedMax } from './decision';
import type { ImportRecord } from './import-batch';
import type { ImportOptions } from './import-options';
import type { FilePlace } from './import-state';

const placeAt = (offset: number): FilePlace => ({ offset, checksum: 0, lines: offset / 10, reader: {} });
const refusal: KeptRefusal = {
  code: 'INVALID_ARGUMENT',
  reason: 'MALFORMED_JSON',
  message: 'It is no JSON',
  details: {},
};

/** A record of ten bytes: with an id, or refused. */
const record = (index: number, id: string | undefined, others: Partial<ImportRecord> = {}): ImportRecord => ({
  line: index + 1,
  before: placeAt(index * 10),
  offset: index * 10,
  text: Buffer.from(id === undefined ? '{' : `{"id":"${id}"}`),
  refusal: id === undefined ? refusal : undefined,
  isFatal: false,
  document: id === undefined ? undefined : ({ id } as PreparedDocument),
  ...others,
});

const options = (mode: ImportOptions['mode'], onError: ImportOptions['on_error']): ImportOptions => ({
  format: 'ndjson',
  mode,
  on_error: onError,
  dry_run: false,
});

const outcome = (
  ids: ReadonlyArray<string | undefined>,
  mode: ImportOptions['mode'],
  onError: ImportOptions['on_error'],
  failed = 0,
) => {
  const records = ids.map((id, index) => record(index, id));
  const decision = decide(
    { records, to: placeAt(ids.length * 10) },
    { options: options(mode, onError), failed },
    (id) => id.startsWith('old'),
  );
  return {
    accepted: decision.accepted.map(({ line }) => line),
    skipped: decision.skipped,
    failed: decision.failed.map(({ record: { line } }) => line),
    to: decision.to.offset,
    end: decision.end && [decision.end.reason, decision.end.details['line']],
  };
};

const ids = ['a', 'old1', 'a', undefined, 'b'];

test.each<[ImportOptions['mode'], ImportOptions['on_error'], object]>([
  ['upsert', 'continue', { accepted: [1, 2, 3, 5], skipped: 0, failed: [4], to: 50, end: undefined }],
  ['upsert', 'abort', { accepted: [1, 2, 3], skipped: 0, failed: [], to: 30, end: ['MALFORMED_JSON', 4] }],
  ['insert', 'continue', { accepted: [1, 5], skipped: 0, failed: [2, 3, 4], to: 50, end: undefined }],
  ['insert', 'abort', { accepted: [1], skipped: 0, failed: [], to: 10, end: ['ALREADY_EXISTS', 2] }],
  ['skip', 'continue', { accepted: [1, 5], skipped: 2, failed: [4], to: 50, end: undefined }],
  ['skip', 'abort', { accepted: [1], skipped: 2, failed: [], to: 30, end: ['MALFORMED_JSON', 4] }],
])('%s, %s', (mode, onError, expected) => {
  expect(outcome(ids, mode, onError)).toEqual(expected);
});

test('an import ends before the record that is one failure too many, and before one beyond which nothing can be read', () => {
  expect(outcome(ids, 'insert', 'continue', failedMax - 2)).toMatchObject({
    accepted: [1],
    failed: [2, 3],
    to: 30,
    end: ['TOO_MANY_ERRORS', 4],
  });
  const records = [record(0, 'a'), record(1, undefined, { isFatal: true })];
  const decision = decide(
    { records, to: placeAt(20) },
    { options: options('upsert', 'continue'), failed: 0 },
    () => false,
  );
  expect(decision).toMatchObject({
    to: { offset: 10 },
    end: { reason: 'MALFORMED_JSON', message: 'Line 2: It is no JSON' },
  });
});

test('an error that is kept has the id of its record where that can be read, and details of a bounded size', () => {
  const details = Object.fromEntries(Array.from({ length: 500 }, (_, index) => [`field${index}`, ['is wrong']]));
  const failed = {
    record: record(3, undefined, { text: Buffer.from('{"id":7,"x":1}') }),
    error: { ...refusal, details },
  };
  expect(JSON.parse(errorText(failed))).toEqual({
    line: 4,
    offset: 30,
    code: 'MALFORMED_JSON',
    id: '7',
    error: 'It is no JSON',
    details: {},
  });
});
