import { CsvReader } from './csv-reader';
import { JsonArrayReader } from './json-array-reader';
import { LinesReader } from './lines-reader';
import { recordSizeMaxBytes, type Chunk, type CsvOptions, type ImportFormat, type RecordReader } from './record';

/** A reader of the records of a chunk. `csv` is needed for that format. `sizeMaxBytes` is smaller in tests. */
export function openRecords(
  format: ImportFormat,
  chunk: Chunk,
  csv?: CsvOptions,
  sizeMaxBytes = recordSizeMaxBytes,
): RecordReader {
  if (format === 'ndjson') return new LinesReader(chunk, sizeMaxBytes);
  if (format === 'json') return new JsonArrayReader(chunk, sizeMaxBytes);
  if (!csv) throw new TypeError('A reader of CSV needs its options');
  return new CsvReader(chunk, csv, sizeMaxBytes);
}
