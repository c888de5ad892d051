import type { Socket } from 'node:net';
import type { Submittable } from 'pg';
import { BinaryWriter } from './wire/binary';
import type { CopyIn } from './copy';
import type { Connection } from './pool';
import { statementName } from './prepared';
import { Sql } from './sql';

export type Step = Sql | CopyIn;

/** What a step gave: the words of its completion (`COMMIT`, `UPDATE 1`), and its rows as the texts that Postgres sent. */
export interface StepAnswer {
  completion: string;
  rows: Array<Array<string | null>>;
}

/** What this uses of pg's connection: its socket, and what it knows to be prepared. */
interface Wire {
  stream: Socket;
  parsedStatements: Record<string, string>;
}

/** Messages of the extended query protocol, by their first byte. */
const code = { bind: 0x42, close: 0x43, execute: 0x45, parse: 0x50, sync: 0x53, copyDone: 0x63 };
/** What Close closes. */
const statementKind = 0x53;
const messagesBytes = 4 * 1024;

/** A step as it is sent: compiled before anything is on its way, for that may throw. */
interface Message {
  /** Empty for a statement that is not prepared. */
  name: string;
  text: string;
  values: Array<string | Buffer | null>;
  copied: readonly Buffer[] | undefined;
}

/**
 * Sends steps in one go, without waiting for one before the next, and gives their answers in order. They end at the
 * first that fails: Postgres passes over the rest, and what is thrown is that step's error. Values are null, text,
 * numbers, booleans, dates, and buffers in the binary format of the parameter's type; arrays must be such buffers.
 */
export function pipeline(tx: Connection, steps: readonly Step[]): Promise<StepAnswer[]> {
  return new Promise((resolve, reject) => {
    tx.query(new Pipeline(steps.map(toMessage), resolve, reject));
  });
}

function toMessage(step: Step): Message {
  const statement = step instanceof Sql ? step : step.statement;
  const { text, values } = statement.compile();
  // What has no values (BEGIN, COPY, COMMIT) has no plan that could be kept.
  const known = values.length === 0 ? undefined : statementName(text);
  return {
    // A name of its own: who prepares these statements is nobody else's matter.
    name: known === undefined ? '' : `p${known}`,
    text,
    values: values.map(wireValue),
    copied: step instanceof Sql ? undefined : step.messages,
  };
}

class Pipeline implements Submittable {
  private readonly answers: StepAnswer[] = [];
  private rows: StepAnswer['rows'] = [];
  /** The names that are prepared on the way. */
  private readonly prepared: string[] = [];

  constructor(
    private readonly messages: readonly Message[],
    private readonly resolve: (answers: StepAnswer[]) => void,
    private readonly reject: (error: unknown) => void,
  ) {}

  submit(connection: unknown): void {
    const wire = connection as Wire;
    let writer = new BinaryWriter(messagesBytes);
    wire.stream.cork();
    for (const { name, text, values, copied } of this.messages) {
      if (name === '') writeParse(writer, name, text);
      else if (wire.parsedStatements[name] === undefined) this.prepare(wire, writer, name, text);
      writeExecution(writer, name, values);
      if (!copied) continue;
      wire.stream.write(writer.take());
      // Should the COPY fail before it takes them, Postgres throws them away up to the sync.
      for (const message of copied) wire.stream.write(message);
      writer = new BinaryWriter(messagesBytes);
      writer.message(code.copyDone, () => {});
    }
    writer.message(code.sync, () => {});
    wire.stream.write(writer.take());
    wire.stream.uncork();
  }

  /** To close what is not there is no error, to prepare what is there is one, and after a failure nobody can be sure. */
  private prepare(wire: Wire, writer: BinaryWriter, name: string, text: string): void {
    writer.message(code.close, () => {
      writer.byte(statementKind);
      writer.zeroEnded(name);
    });
    writeParse(writer, name, text);
    wire.parsedStatements[name] = text;
    this.prepared.push(name);
  }

  handleDataRow({ fields }: { fields: Array<string | null> }): void {
    this.rows.push(fields);
  }

  handleCommandComplete({ text }: { text: string }): void {
    this.answers.push({ completion: text, rows: this.rows });
    this.rows = [];
  }

  /** Also called when the connection is lost; then nothing is known of the steps that have no answer. */
  handleError(error: unknown, connection?: unknown): void {
    for (const name of this.prepared) delete (connection as Partial<Wire> | undefined)?.parsedStatements?.[name];
    this.reject(error);
  }

  handleReadyForQuery(): void {
    this.resolve(this.answers);
  }

  // The rows of a COPY are on their way already, and nothing here describes or divides its rows.
  handleCopyInResponse(): void {}
  handleRowDescription(): void {}
  handlePortalSuspended(): void {}
  handleEmptyQuery(): void {}
}

function writeParse(writer: BinaryWriter, name: string, text: string): void {
  writer.message(code.parse, () => {
    writer.zeroEnded(name);
    writer.zeroEnded(text);
    writer.int16(0); // the types of the parameters are for Postgres to infer
  });
}

/** Binds the values to a statement, in the unnamed portal, and executes that to its end. */
function writeExecution(writer: BinaryWriter, name: string, values: Message['values']): void {
  writer.message(code.bind, () => {
    writer.zeroEnded('');
    writer.zeroEnded(name);
    writer.int16(values.length);
    for (const value of values) writer.int16(Buffer.isBuffer(value) ? 1 : 0); // buffers are binary, the rest is text
    writer.int16(values.length);
    for (const value of values) writer.textField(value);
    writer.int16(0); // all results as text
  });
  writer.message(code.execute, () => {
    writer.zeroEnded('');
    writer.int32(0); // all rows
  });
}

function wireValue(value: unknown): string | Buffer | null {
  if (value === null || typeof value === 'string' || Buffer.isBuffer(value)) return value;
  if (value instanceof Date) return value.toISOString();
  if (typeof value === 'bigint' || typeof value === 'number' || typeof value === 'boolean') return String(value);
  throw new TypeError('a value of a pipelined statement has a type that it cannot send');
}
