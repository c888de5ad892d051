/** The documents stored on every side: 365 bytes of JSON with 11 fields, derived from a number. */

/** A body of documents: texts around all of them and around each, and how many there are. */
export interface DocumentsBody {
  prefix: string;
  suffix: string;
  documents: number;
  each?: { before: string; after: string };
}

export const documentSizeBytes = 365;
export const categoryCount = 100;
/** The number of owners: it is so large that each has at most 10 of 100,000 documents, namely 5 or 6. */
export const ownerCount = 18_000;

const start =
  '{"id":"d0000000000","owner":"u00000","category":"c00","score":100000,"views":100000,"active":true,' +
  '"created_at":"2025-03-14T09:26:53.589Z","title":"A document of the usual size","tags":["first","second"],' +
  '"address":{"street":"Main Street 17","city":"Springfield","geo":{"lat":39.78,"lon":-89.65}},"note":"';
const end = '"}';
const text = start + 'x'.repeat(documentSizeBytes - start.length - end.length) + end;
const template = Buffer.from(text, 'latin1');
/** A document without its id. */
export const documentText = text.replace(/"id":"[^"]*",/, '');

const positionOf = (field: string) => text.indexOf(`"${field}":`) + field.length + 3;
const idOffset = positionOf('id') + 2;
const ownerOffset = positionOf('owner') + 2;
const categoryOffset = positionOf('category') + 2;
const scoreOffset = positionOf('score');
const viewsOffset = positionOf('views');

/** The indexed fields of a document. No two documents with numbers below 899,981 have equal scores. */
export const ownerOf = (number: number): number => number % ownerCount;
const categoryOf = (number: number) => number % categoryCount;
const scoreOf = (number: number) => 100_000 + ((number * 7919) % 899_981);
const viewsOf = (number: number) => 100_000 + ((number * 104_729) % 899_981);

/** Writes the document of a number into the buffer at the offset; returns its end. */
export function writeDocument(buffer: Buffer, offset: number, number: number): number {
  template.copy(buffer, offset);
  renumberDocument(buffer, offset, number);
  return offset + documentSizeBytes;
}

/** Changes the document at the offset of the buffer into that of another number. */
export function renumberDocument(buffer: Buffer, offset: number, number: number): void {
  writeDigits(buffer, offset + idOffset, 10, number);
  writeDigits(buffer, offset + ownerOffset, 5, ownerOf(number));
  writeDigits(buffer, offset + categoryOffset, 2, categoryOf(number));
  writeDigits(buffer, offset + scoreOffset, 6, scoreOf(number));
  writeDigits(buffer, offset + viewsOffset, 6, viewsOf(number));
}

function writeDigits(buffer: Buffer, offset: number, width: number, value: number): void {
  for (let i = offset + width - 1; i >= offset; i--) {
    buffer[i] = 48 + (value % 10);
    value = Math.floor(value / 10);
  }
}

/** Values that the reads filter by, as they appear in a query. */
export const ownerName = (owner: number): string => `u${String(owner).padStart(5, '0')}`;
export const categoryName = (category: number): string => `c${String(category).padStart(2, '0')}`;

/** The id of the document of a number. */
export const idName = (number: number): string => `d${String(number).padStart(10, '0')}`;

/** Changes the id at the offset of the buffer into that of another number. */
export const renumberId = (buffer: Buffer, offset: number, number: number): void =>
  writeDigits(buffer, offset + 1, 10, number);

/** The bytes of a body of `count` documents, each between the texts of `each`, and the offset of each document. */
export function bodyOf({ prefix, suffix, documents: count, each = { before: '', after: '' } }: DocumentsBody): {
  body: Buffer;
  places: number[];
} {
  const separator = count > 1 ? 1 : 0;
  const { before, after } = each;
  const stride = before.length + documentSizeBytes + after.length + separator;
  const sizeBytes = prefix.length + count * stride - separator + suffix.length;
  const body = Buffer.alloc(sizeBytes, ',');
  const places: number[] = [];
  body.write(prefix, 0, 'latin1');
  for (let i = 0, start = prefix.length; i < count; i++, start += stride) {
    const place = start + before.length;
    body.write(before, start, 'latin1');
    const end = writeDocument(body, place, i);
    body.write(after, end, 'latin1');
    places.push(place);
  }
  body.write(suffix, sizeBytes - suffix.length, 'latin1');
  return { body, places };
}
