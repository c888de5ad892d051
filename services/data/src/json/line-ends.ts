const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const space = 0x20;

/**
 * A JSON text without line ends, which separate texts where several follow each other. In JSON they are white space
 * between tokens, so the value stays the same.
 */
export function withoutLineEnds(text: Buffer): Buffer {
  if (!text.includes(lineFeed) && !text.includes(carriageReturn)) return text;
  const line = Buffer.from(text);
  for (const end of [lineFeed, carriageReturn]) replaceBytes(line, end, space);
  return line;
}

/** Puts one byte in the place of each occurrence of another. */
export function replaceBytes(bytes: Buffer, old: number, replacement: number): void {
  for (let index = bytes.indexOf(old); index >= 0; index = bytes.indexOf(old, index + 1)) bytes[index] = replacement;
}
