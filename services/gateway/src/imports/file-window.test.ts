import { crc32 } from 'node:zlib';
import { FileWindow } from './file-window';

test('bytes are dropped up to an offset, and the checksum is that of all before it', () => {
  const file = Buffer.from('0123456789abcdef');
  const window = new FileWindow(2, crc32(file.subarray(0, 2)));
  for (const [from, to] of [
    [2, 5],
    [5, 6],
    [6, 12],
  ] as const) {
    window.add(file.subarray(from, to));
  }
  expect([window.start, window.end, window.size]).toEqual([2, 12, 10]);
  window.dropBefore(1);
  expect(window.start).toBe(2);
  window.dropBefore(7);
  expect([window.start, window.end, window.bytes().toString()]).toEqual([7, 12, '789ab']);
  expect(window.checksum).toBe(crc32(file.subarray(0, 7)));
  window.dropBefore(99);
  expect([window.start, window.size, window.bytes().length]).toEqual([12, 0, 0]);
  window.add(file.subarray(12));
  expect([window.bytes().toString(), window.checksum]).toEqual(['cdef', crc32(file.subarray(0, 12))]);
});
