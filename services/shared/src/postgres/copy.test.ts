import { countTurns } from '@granary/testing/event-loop';
import { copyInto } from './copy';
import { sql, trusted } from './sql';

const copyNumbers = (numbers: readonly number[]) =>
  copyInto(trusted('numbers'), { names: sql`number`, count: 1 }, numbers, (writer, number) => writer.int4Field(number));

/** What stands in the messages, each of which says how long it is. */
function contentOf(messages: readonly Buffer[]): Buffer {
  for (const message of messages) {
    expect(message.toString('latin1', 0, 1)).toBe('d');
    expect(message.readInt32BE(1)).toBe(message.length - 1);
  }
  return Buffer.concat(messages.map((message) => message.subarray(5)));
}

function expected(numbers: readonly number[]): Buffer {
  const rows = Buffer.alloc(numbers.length * 10);
  for (const [row, number] of numbers.entries()) {
    rows.writeInt16BE(1, row * 10);
    rows.writeInt32BE(4, row * 10 + 2);
    rows.writeInt32BE(number, row * 10 + 6);
  }
  return Buffer.concat([Buffer.from('PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0', 'latin1'), rows, Buffer.from([0xff, 0xff])]);
}

test('the rows of a COPY are in its messages in order, and others have a turn between two of these', async () => {
  let ms = 0;
  // Each look at the clock finds a slice over.
  const clock = jest.spyOn(performance, 'now').mockImplementation(() => (ms += 1));
  const turns = countTurns();
  try {
    const numbers = Array.from({ length: 40_000 }, (_, n) => n * 50_021);
    const { messages } = await copyNumbers(numbers);
    expect(messages.length).toBeGreaterThan(5);
    expect(turns.count()).toBeGreaterThanOrEqual(messages.length - 1);
    expect(contentOf(messages).equals(expected(numbers))).toBe(true);
    expect(contentOf((await copyNumbers([])).messages)).toEqual(expected([]));
  } finally {
    turns.stop();
    clock.mockRestore();
  }
});
