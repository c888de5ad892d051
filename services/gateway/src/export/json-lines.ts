const lineFeed = 0x0a;

/** The lines in parts of about so many bytes, each with whole lines. */
export function* partsOf(lines: Buffer, bytes: number): Generator<Buffer> {
  for (let start = 0; start < lines.length;) {
    const last = start + bytes >= lines.length ? lines.length - 1 : lines.lastIndexOf(lineFeed, start + bytes);
    const end = (last < start ? lines.indexOf(lineFeed, start) : last) + 1;
    yield lines.subarray(start, end);
    start = end;
  }
}

/** The lines, without their ends. */
export function* linesIn(lines: Buffer): Generator<Buffer> {
  for (let start = 0; start < lines.length;) {
    const end = lines.indexOf(lineFeed, start);
    yield lines.subarray(start, end);
    start = end + 1;
  }
}
