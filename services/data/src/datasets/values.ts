import { invalid } from '@granary/shared/errors';
import { decodeString } from '@granary/shared/json/bytes';
import { JsonReader } from '@granary/shared/json/reader';
import { fromJsonError } from '@granary/shared/json/service-error';
import { JsonError } from '@granary/shared/json/error';
import { runSliced, type Task } from '@granary/shared/concurrency/time-slicing';
import { LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { keyType, OrderedKeys } from '../values/ordered-key';

/** Values of one data set. */
export const datasetValuesMax = 100_000;

/** A value as it is compared. */
export interface DatasetRow {
  /** Its key in an index of a field. */
  key: Buffer;
  /** The value where it is a string. */
  text: string | null;
}

export interface DatasetValues {
  /** The JSON text of the array, as it was sent. */
  text: string;
  count: number;
  /** The different values; an instant has a row for fields of type date, and one for other fields. */
  rows: DatasetRow[];
}

/** Reads `{"values": [scalar, …]}`, in time slices. Throws MALFORMED_JSON, VALIDATION_FAILED, LIMIT_EXCEEDED. */
export async function parseDatasetBody(body: Buffer): Promise<DatasetValues> {
  try {
    return await runSliced(readBody(body));
  } catch (error) {
    if (error instanceof JsonError) throw fromJsonError(error, 'The body is not valid', error.path || 'body');
    throw error;
  }
}

const lengthBytes = 4;
/** Values between two breaks. */
const valuesPerStep = 200;

function* readBody(body: Buffer): Task<DatasetValues> {
  const reader = new JsonReader(body, { maxDepth: 3 });
  let values: DatasetValues | undefined;
  if (reader.peekType() !== 'object') throw refused('body', 'must be an object with the member values');
  reader.enterObject();
  while (reader.nextMember()) {
    const name = reader.key();
    if (name !== 'values') throw refused(name, 'is not a known field');
    values = yield* readValues(reader);
  }
  reader.end();
  if (!values) throw refused('values', 'is required');
  return values;
}

function* readValues(reader: JsonReader): Task<DatasetValues> {
  if (reader.peekType() !== 'array') throw refused('values', 'must be an array');
  const { bytes, position: start } = reader;
  const rows = new RowsOfValues(bytes);
  let count = 0;
  reader.enterArray();
  while (reader.nextElement()) {
    const type = reader.peekType();
    if (type === 'array' || type === 'object') {
      throw refused(`values[${count}]`, 'must be a string, a number, true, false or null');
    }
    count += 1;
    if (count > datasetValuesMax) {
      const message = `may hold at most ${datasetValuesMax} values`;
      throw invalid(`values ${message}`, { values: [message] }, LIMIT_EXCEEDED);
    }
    const from = reader.skipValue();
    rows.add(type, from, reader.position);
    if (count % valuesPerStep === 0) yield;
  }
  return { text: bytes.toString('utf8', start, reader.position), count, rows: rows.rows };
}

/** The rows of the values in a text, each once. */
class RowsOfValues {
  readonly rows: DatasetRow[] = [];
  readonly #seen = new Set<string>();

  constructor(private readonly bytes: Buffer) {}

  add(type: 'string' | 'number' | 'boolean' | 'null', start: number, end: number): void {
    const text = type === 'string' ? decodeString(this.bytes, start + 1, end - 1, true) : null;
    this.#addKey(this.#keyOf(type, start, end, false), text);
    if (type !== 'string') return;
    const dateKey = this.#keyOf(type, start, end, true);
    if (dateKey[0] === keyType.instant) this.#addKey(dateKey, null);
  }

  #keyOf(type: 'string' | 'number' | 'boolean' | 'null', start: number, end: number, isDate: boolean): Buffer {
    const keys = new OrderedKeys(lengthBytes + Math.min(end - start, 64));
    keys.append(this.bytes, { type, start, end }, isDate);
    return keys.bytes.subarray(lengthBytes, keys.length);
  }

  #addKey(key: Buffer, text: string | null): void {
    // The key alone may have lost the end of a string.
    const identity = text ?? key.toString('latin1') + '\0';
    if (this.#seen.has(identity)) return;
    this.#seen.add(identity);
    this.rows.push({ key, text });
  }
}

const refused = (field: string, message: string) =>
  invalid(`The data set is not valid: ${field} ${message}`, { [field]: [message] });
