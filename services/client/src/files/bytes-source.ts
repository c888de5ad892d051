/**
 * The source of a file: a file of a browser or of `fs.openAsBlob`, bytes, a text, a stream, or documents and pieces of
 * text as they come; each document becomes a line of JSON.
 */
export type ByteSource =
  Blob | Uint8Array | string | ReadableStream<Uint8Array> | Iterable<object | string> | AsyncIterable<object | string>;

/** The same without a text, which is encoded once. */
export type FileSource = Exclude<ByteSource, string>;

export const fileOf = (source: ByteSource): FileSource => (typeof source === 'string' ? new Blob([source]) : source);

const encoder = new TextEncoder();

/** A source is read, and small pieces of one are joined, to pieces of about this size. */
const pieceBytes = 256 * 1_024;

/** The pieces of a source, one after the other. */
export async function* piecesOf(source: FileSource): AsyncGenerator<Uint8Array, void, undefined> {
  if (source instanceof Blob) yield* chunksOf(source.stream());
  else if (source instanceof Uint8Array) yield* partsOf(source);
  else if (source instanceof ReadableStream) yield* chunksOf(source);
  else yield* joined(source);
}

function* partsOf(bytes: Uint8Array): Generator<Uint8Array, void, undefined> {
  for (let start = 0; start < bytes.byteLength; start += pieceBytes) yield bytes.subarray(start, start + pieceBytes);
}

async function* joined(
  pieces: Iterable<object | string> | AsyncIterable<object | string>,
): AsyncGenerator<Uint8Array, void, undefined> {
  let text = '';
  for await (const piece of pieces) {
    if (piece instanceof Uint8Array) {
      yield encoder.encode(text);
      text = '';
      yield* partsOf(piece);
    } else text += typeof piece === 'string' ? piece : `${JSON.stringify(piece)}\n`;
    if (text.length < pieceBytes) continue;
    yield encoder.encode(text);
    text = '';
  }
  yield encoder.encode(text);
}

/** Not every browser can iterate over a stream. */
async function* chunksOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** The size in bytes, where it is known before anything is read. */
export function sizeOf(source: FileSource): number | undefined {
  if (source instanceof Blob) return source.size;
  return source instanceof Uint8Array ? source.byteLength : undefined;
}
