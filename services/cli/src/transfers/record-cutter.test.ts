import { cellsOf, RecordCutter } from './record-cutter.ts';

const table = 'id,"a ""b"""\r\n1,"x\r\ny"\r\n2,""\r\n3,é\r\n';

test.each([
  ['lines', '{"id":"a"}\n{"id":"é"}\n\n{"id":"c"}\n', false, 4, '{"id":"c"}\n'],
  ['rows', table, true, 4, '3,é\r\n'],
])('%s are whole however they are cut', (_, text, isTable, count, last) => {
  const bytes = Buffer.from(text);
  for (let size = 1; size <= bytes.length; size += 1) {
    const cutter = new RecordCutter(isTable);
    const parts = [];
    for (let start = 0; start < bytes.length; start += size) {
      const records = cutter.cut(bytes.subarray(start, start + size));
      if (records) parts.push(records);
    }
    expect(Buffer.concat(parts.map((part) => part.bytes)).equals(bytes)).toBe(true);
    expect(parts.reduce((sum, part) => sum + part.count, 0)).toBe(count);
    expect(parts.at(-1)!.last.toString()).toBe(last);
    expect(parts[0]!.first.equals(bytes.subarray(0, bytes.indexOf('\n') + 1))).toBe(true);
    expect(cutter.isWithinRecord).toBe(false);
  }
});

test('what is behind the last end waits for its own', () => {
  const cutter = new RecordCutter(true);
  expect(cutter.cut(Buffer.from('1,"x\r\n'))).toBeUndefined();
  expect(cutter.isWithinRecord).toBe(true);
  expect(cutter.cut(Buffer.from('y"\r\n2'))!.bytes.toString()).toBe('1,"x\r\ny"\r\n');
  expect(cutter.isWithinRecord).toBe(true);
});

test('a row has its cells', () => {
  expect(cellsOf('id,"a ""b"",",,c\r\n')).toEqual(['id', 'a "b",', '', 'c']);
  expect(cellsOf('only\r\n')).toEqual(['only']);
});
