import { Readable, Writable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { pump, type PumpObserver } from './pipe';

const chunk = Buffer.alloc(64 * 1024, 'x');

function endless(): Readable {
  return new Readable({
    highWaterMark: chunk.length,
    read() {
      setImmediate(() => this.push(chunk));
    },
  });
}

function counting(): { sink: Writable; bytes: () => number } {
  let bytes = 0;
  const sink = new Writable({
    highWaterMark: 4 * chunk.length,
    write(written: Buffer, _, done) {
      bytes += written.length;
      done();
    },
  });
  return { sink, bytes: () => bytes };
}

test('beside many transfers a turn of the event loop passes on only a few chunks, and each transfer gets its turn', async () => {
  const transfers = Array.from({ length: 100 }, counting);
  const stops = transfers.map(({ sink }) => pump(endless(), sink));
  const total = () => transfers.reduce((sum, { bytes }) => sum + bytes(), 0) / chunk.length;
  // At first none of them is known to have anything.
  for (let turn = 0; turn < 4; turn++) await nextTurn();
  const perTurn: number[] = [];
  for (let turn = 0; turn < 200; turn++) {
    const before = total();
    await nextTurn();
    perTurn.push(total() - before);
  }
  for (const stop of stops) stop();
  expect(Math.max(...perTurn)).toBeLessThanOrEqual(16);
  const least = Math.min(...transfers.map(({ bytes }) => bytes()));
  expect(least).toBeGreaterThanOrEqual(5 * chunk.length);
});

test('an observer hears the bytes, when the receiver takes no more and when it has taken all, and the end', async () => {
  const heard: string[] = [];
  let movedBytes = 0;
  const observer: PumpObserver = {
    moved: (bytes) => (movedBytes += bytes),
    blocked: () => heard.push('blocked'),
    unblocked: () => heard.push('unblocked'),
    ended: () => heard.push('ended'),
  };
  let take = () => {};
  const sink = new Writable({ highWaterMark: 16 * 1024, write: (_chunk, _encoding, done) => void (take = done) });
  const source = Readable.from(Array.from({ length: 5 }, () => chunk));
  pump(source, sink, observer);
  const until = async (event: string) => {
    while (heard.at(-1) !== event) {
      await nextTurn();
      if (event !== 'blocked') take();
    }
  };
  await until('blocked');
  expect(movedBytes).toBe(4 * chunk.length);
  await until('ended');
  expect([movedBytes, heard]).toEqual([5 * chunk.length, ['blocked', 'unblocked', 'ended']]);
});
