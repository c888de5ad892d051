/**
 * What a file is read from: a file of a browser or of `fs.openAsBlob`, bytes, a text, a stream, or documents and pieces
 * of text as they come; each document becomes a line of JSON.
 */
export type ByteSource =
  Blob | Uint8Array | string | ReadableStream<Uint8Array> | Iterable<object | string> | AsyncIterable<object | string>;

const encoder = new TextEncoder();

/** The pieces of a source, one after the other. */
export async function* piecesOf(source: ByteSource): AsyncGenerator<Uint8Array, void, undefined> {
  if (source instanceof Blob) yield* piecesOf(source.stream());
  else if (typeof source === 'string') yield encoder.encode(source);
  else if (source instanceof Uint8Array) yield source;
  else if (source instanceof ReadableStream) yield* chunksOf(source);
  else for await (const piece of source) yield bytesOf(piece);
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

function bytesOf(piece: object | string): Uint8Array {
  if (piece instanceof Uint8Array) return piece;
  return encoder.encode(typeof piece === 'string' ? piece : `${JSON.stringify(piece)}\n`);
}

/** The size in bytes, where it is known before anything is read. */
export function sizeOf(source: ByteSource): number | undefined {
  if (source instanceof Blob) return source.size;
  if (source instanceof Uint8Array) return source.byteLength;
  return typeof source === 'string' ? encoder.encode(source).byteLength : undefined;
}
