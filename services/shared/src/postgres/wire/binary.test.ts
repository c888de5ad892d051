import fc from 'fast-check';
import { checkProperty } from '@granary/testing/properties';
import { BinaryWriter } from './binary';

/** What a writer of two bytes, which must grow, has written, as hex digits. */
function written(write: (writer: BinaryWriter) => void): string {
  const writer = new BinaryWriter(2);
  write(writer);
  return writer.take().toString('hex');
}

test('numbers are written in two’s complement, the highest byte first, each field behind its length', async () => {
  await checkProperty(
    'shared/binary numbers',
    100,
    fc.property(fc.maxSafeInteger(), fc.integer(), (long, short) => {
      const expected = Buffer.alloc(20);
      expected.writeInt32BE(8, 0);
      expected.writeBigInt64BE(BigInt(long), 4);
      expected.writeInt32BE(4, 12);
      expected.writeInt32BE(short, 16);
      const fields = written((writer) => {
        writer.int8Field(long);
        writer.int4Field(short);
      });
      expect(fields).toBe(expected.toString('hex'));
    }),
  );
});

test('text that stands in a buffer is written as the same text by itself is', async () => {
  await checkProperty(
    'shared/binary texts',
    100,
    fc.property(fc.string(), fc.string({ unit: 'grapheme' }), fc.string(), (before, text, after) => {
      const start = Buffer.byteLength(before);
      const bytes = Buffer.from(before + text + after);
      const field = written((writer) => writer.bytesField(bytes, start, start + Buffer.byteLength(text)));
      expect(field).toBe(written((writer) => writer.textField(text)));
    }),
  );
});
