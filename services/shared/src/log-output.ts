import { fstatSync, writeSync } from 'node:fs';
import { pino, type DestinationStream } from 'pino';

/** Lines that wait for the reader of a pipe, beside those that have been handed to it. */
const waitingBytesMax = 1024 * 1024;
/** Handed over at once; the rest waits where it can be counted. */
const chunkBytes = 64 * 1024;

let droppedTotal = 0;

/** Lines of the log that this process has dropped, for a metric. */
export const droppedLogLines = (): number => droppedTotal;

/**
 * Writes lines to a pipe that may not be read, without ever waiting for it: what does not fit into a bounded buffer is
 * dropped and counted, and a line with the count follows once there is room again.
 */
class PipeOutput implements DestinationStream {
  private waiting: string[] = [];
  private waitingBytes = 0;
  private droppedLines = 0;
  private isWriting = false;
  private isBroken = false;
  private scheduled = false;
  private isWatched = false;

  constructor(
    private readonly pipe: NodeJS.WriteStream,
    private readonly service: string,
  ) {}

  write(line: string): void {
    if (this.isBroken) {
      droppedTotal++;
      return;
    }
    if (this.waitingBytes + line.length > waitingBytesMax) {
      this.droppedLines++;
      droppedTotal++;
      return;
    }
    this.waiting.push(line);
    this.waitingBytes += line.length;
    if (this.scheduled || this.isWriting) return;
    this.scheduled = true;
    if (!this.isWatched) this.watch();
    // Lines of one turn of the event loop go together.
    setImmediate(() => this.next());
  }

  /** Whether the reader has taken everything. */
  get isDrained(): boolean {
    return this.isBroken || (!this.isWriting && this.waiting.length === 0);
  }

  /** Listens for errors of the pipe and for the exit of the process, from the first line on. */
  private watch(): void {
    this.isWatched = true;
    // The reader has gone, and no other can come.
    this.pipe.on('error', () => {
      this.isBroken = true;
      this.waiting = [];
    });
    process.on('exit', () => this.writeRest());
  }

  private next(): void {
    this.scheduled = false;
    if (this.isWriting || this.isBroken || this.waiting.length === 0) return;
    if (this.droppedLines > 0) this.reportDropped();
    const chunk = this.take();
    this.isWriting = true;
    this.pipe.write(chunk, () => {
      this.isWriting = false;
      this.next();
    });
  }

  private take(): string {
    let bytes = 0;
    let count = 0;
    while (count < this.waiting.length && bytes < chunkBytes) bytes += this.waiting[count++]!.length;
    this.waitingBytes -= bytes;
    return this.waiting.splice(0, count).join('');
  }

  /** Adds a line with the number of dropped lines, after the lines that came before them. */
  private reportDropped(): void {
    const report = {
      level: 40,
      time: new Date().toISOString(),
      service: this.service,
      lines: this.droppedLines,
      msg: 'lines of the log were dropped: nobody read them',
    };
    this.droppedLines = 0;
    const line = `${JSON.stringify(report)}\n`;
    this.waiting.push(line);
    this.waitingBytes += line.length;
  }

  /** Writes the lines that still wait. Called at the exit, where nothing asynchronous runs any more. */
  private writeRest(): void {
    if (this.isDrained || this.isWriting) return;
    try {
      writeSync(1, this.waiting.join(''));
    } catch {
      // The pipe is full or closed.
    }
  }
}

let output: DestinationStream | undefined;

/** The output for the log of this process: standard output, which must not hold it up. Made for the first caller. */
export function logOutput(service: string): DestinationStream {
  output ??= isPipe() ? new PipeOutput(process.stdout, service) : pino.destination({ dest: 1, sync: true });
  return output;
}

/** Whether what is in the log of this process has been taken; false while nobody reads. */
export function isLogDrained(): boolean {
  return !(output instanceof PipeOutput) || output.isDrained;
}

function isPipe(): boolean {
  try {
    const stdout = fstatSync(1);
    return stdout.isFIFO() || stdout.isSocket();
  } catch {
    return false;
  }
}
