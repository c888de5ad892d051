import { once } from 'node:events';
import { styleText } from 'node:util';
import { UsageError } from '../failure.ts';

export interface TerminalStreams {
  stdin: NodeJS.ReadStream;
  stdout: NodeJS.WriteStream;
  stderr: NodeJS.WriteStream;
}

export interface TerminalOptions {
  /** Data is printed as JSON, for programs. */
  json?: boolean | undefined;
  /** Nothing but data and errors is printed. */
  quiet?: boolean | undefined;
  /** False: no colours. */
  color?: boolean | undefined;
  /** Destructive commands do not ask for a confirmation. */
  yes?: boolean | undefined;
}

export type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan';

/**
 * Characters with which a document could change what a terminal shows: controls, but for tab and newline, and marks
 * that turn the direction of a text.
 */
// eslint-disable-next-line no-control-regex
const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** A text of somebody else as a terminal may show it. */
export const visible = (text: string): string => text.replace(controls, '\uFFFD');

/** The codes that `styled` adds. Texts of somebody else go through `visible` before they are put together with it. */
// eslint-disable-next-line no-control-regex
const styles = /(\u001b\[(?:1|2|22|31|32|33|36|39)m)/;
const noStyle = '\u001b[0m';

/** A line as a terminal may show it: styles pass, and end with it, for a text of somebody else may have some. */
function visibleLine(line: string): string {
  const parts = line.split(styles);
  const shown = parts.map((part, index) => (index % 2 === 1 ? part : visible(part))).join('');
  return parts.length > 1 ? shown + noStyle : shown;
}

/** The streams of a command. Data goes to stdout, and everything that is for people only to stderr. */
export class Terminal {
  constructor(
    private readonly streams: TerminalStreams,
    readonly options: TerminalOptions = {},
    /** Ends the wait for a reader of stdout that takes nothing. */
    private readonly signal?: AbortSignal,
  ) {}

  /** Whether data goes to a person: as tables, with colours. */
  get isForPeople(): boolean {
    return this.streams.stdout.isTTY && this.options.json !== true;
  }

  /** Whether somebody can be asked something. */
  get isInteractive(): boolean {
    return this.streams.stdin.isTTY && this.streams.stderr.isTTY;
  }

  /** Whether a line on stderr can be written over, as bars of progress are. */
  get isLive(): boolean {
    return this.streams.stderr.isTTY && this.options.quiet !== true;
  }

  /** Columns of characters. */
  get width(): number {
    return this.streams.stdout.columns || this.streams.stderr.columns || 80;
  }

  /** Writes a line of data. Resolves when more can be written. */
  print(text: string): Promise<void> {
    return this.write(`${this.streams.stdout.isTTY ? visibleLine(text) : text}\n`);
  }

  /**
   * Writes data as they are: the bytes of a file. Resolves when more can be written; rejects with the reason of the
   * signal where that is aborted first.
   */
  async write(data: string | Uint8Array): Promise<void> {
    const { stdout } = this.streams;
    if (stdout.write(data)) return;
    const { signal } = this;
    await once(stdout, 'drain', signal ? { signal } : {}).catch((error: unknown) => {
      signal?.throwIfAborted();
      throw error;
    });
  }

  /** Says something that is no data, unless --quiet is given. */
  say(text: string): void {
    if (this.options.quiet !== true) this.complain(text);
  }

  /** Writes an error, or a question. */
  complain(text: string): void {
    this.streams.stderr.write(`${visibleLine(text)}\n`);
  }

  /** Writes over the last line of stderr, where that is a terminal. The empty text removes it. */
  overwrite(text: string): void {
    if (this.isLive) this.streams.stderr.write(`\r\u001b[2K${visible(text).slice(0, Math.max(0, this.width - 1))}`);
  }

  /** A text for stdout; the style is left out where it is no terminal, or colours are not wanted. */
  styled(style: Style, text: string): string {
    return styledFor(this.options, this.streams.stdout, style, text);
  }

  /** The same for stderr. */
  styledMessage(style: Style, text: string): string {
    return styledFor(this.options, this.streams.stderr, style, text);
  }

  /** All of stdin. Throws UsageError where it is a terminal, at which nobody would know that something is awaited. */
  async readAll(meaning: string): Promise<string> {
    const { stdin } = this.streams;
    if (stdin.isTTY)
      throw new UsageError(`${meaning} is read from stdin, which is a terminal`, 'Pipe it into the command.');
    const chunks: Buffer[] = [];
    for await (const chunk of stdin) chunks.push(chunk as Buffer);
    if (chunks.length === 0) throw new UsageError(`${meaning} is missing: stdin is empty`);
    return Buffer.concat(chunks).toString('utf8');
  }

  /** Asks for a line; a secret is not shown while it is typed. Throws UsageError where nobody can be asked. */
  async ask(question: string, { isSecret = false, signal }: { isSecret?: boolean; signal?: AbortSignal } = {}) {
    if (!this.isInteractive) throw new UsageError(`Nobody can be asked here: ${question}`);
    const { createInterface } = await import('node:readline/promises');
    const { Writable } = await import('node:stream');
    const { stdin, stderr } = this.streams;
    const silent = new Writable({ write: (_chunk, _encoding, done) => done() });
    const lines = createInterface({ input: stdin, output: isSecret ? silent : stderr, terminal: true });
    // In its mode the terminal sends no signal for Ctrl-C.
    lines.on('SIGINT', () => process.kill(process.pid, 'SIGINT'));
    try {
      if (isSecret) stderr.write(question);
      const answer = await lines.question(isSecret ? '' : question, signal ? { signal } : {});
      return answer.trim();
    } catch (error) {
      // It has an error of its own for a signal.
      signal?.throwIfAborted();
      if ((error as Error).name === 'AbortError') throw new UsageError('There was no answer: nothing was changed');
      throw error;
    } finally {
      if (isSecret) stderr.write('\n');
      lines.close();
    }
  }

  /**
   * Asks before something is destroyed: its name has to be typed. Resolves with --yes; throws UsageError where nobody
   * can be asked, and for another name.
   */
  async confirm(warning: string, name: string, signal?: AbortSignal): Promise<void> {
    if (this.options.yes) return;
    if (!this.isInteractive) throw new UsageError(`${warning} Nobody can be asked here.`, 'Confirm it with --yes.');
    this.complain(warning);
    const answer = await this.ask(`Type "${name}" to go on: `, signal ? { signal } : {});
    if (answer !== name.trim()) throw new UsageError('That is another name: nothing was changed');
  }
}

function styledFor({ color }: TerminalOptions, stream: NodeJS.WriteStream, style: Style, text: string): string {
  const { NO_COLOR, TERM } = process.env;
  const isPlain = !stream.isTTY || color === false || Boolean(NO_COLOR) || TERM === 'dumb';
  return isPlain ? text : styleText(style, text);
}
