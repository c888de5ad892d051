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
  for (const end of [lineFeed, carriageReturn]) {
    for (let index = line.indexOf(end); index >= 0; index = line.indexOf(end, index + 1)) line[index] = space;
  }
  return line;
}
