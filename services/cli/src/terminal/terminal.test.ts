import { PassThrough } from 'node:stream';
import { Terminal, type TerminalStreams } from './terminal.ts';

test('a write waits for its reader until the signal is aborted', async () => {
  const stdout = new PassThrough({ highWaterMark: 4 });
  const controller = new AbortController();
  const streams = { stdout } as unknown as TerminalStreams;
  const terminal = new Terminal(streams, {}, controller.signal);
  const taken = terminal.write('12345');
  stdout.resume();
  await taken;
  stdout.pause();
  const waiting = terminal.write('12345'.repeat(10));
  controller.abort(new Error('Interrupted'));
  await expect(waiting).rejects.toThrow('Interrupted');
});
