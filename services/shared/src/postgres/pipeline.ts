import type { Submittable } from 'pg';
import type { CopyIn } from './copy';
import type { Connection } from './pool';
import { usePrepared, type PoolWire } from './pool-client';
import { statementName } from './prepared';
import { Sql } from './sql';
import { MessageWriter } from './wire/message-writer';
import { toWireValue, type WireValue } from './wire/values';

export type Step = Sql | CopyIn;

/** The result of a step: its completion tag (`COMMIT`, `UPDATE 1`), and its rows as the texts that Postgres sent. */
export interface StepAnswer {
  completion: string;
  rows: Array<Array<string | null>>;
}

/** A step as it is sent. Steps are compiled before any is sent, because that may throw. */
interface CompiledStep {
  /** Empty for a statement that is not prepared. */
  name: string;
  text: string;
  values: WireValue[];
  copied: readonly Buffer[] | undefined;
}

/** One writer serves all connections: each pipeline is written without a break. */
const writer = new MessageWriter();

/**
 * Sends steps together, without waiting for one before the next, and returns their results in order. They end at the
 * first that fails: Postgres skips the others, and that step's error is thrown.
 */
export function pipeline(tx: Connection, steps: readonly Step[]): Promise<StepAnswer[]> {
  return new Promise((resolve, reject) => {
    tx.query(new Pipeline(steps.map(compile), resolve, reject));
  });
}

function compile(step: Step): CompiledStep {
  const statement = step instanceof Sql ? step : step.statement;
  const { text, values } = statement.compile();
  // A statement without values (BEGIN, COPY, COMMIT) has no plan to keep.
  const preparedName = values.length === 0 ? undefined : statementName(text);
  return {
    // The prefix keeps these names apart from those that pg prepares itself.
    name: preparedName === undefined ? '' : `p${preparedName}`,
    text,
    values: values.map(toWireValue),
    copied: step instanceof Sql ? undefined : step.messages,
  };
}

class Pipeline implements Submittable {
  private readonly answers: StepAnswer[] = [];
  private rows: StepAnswer['rows'] = [];
  /** The names that this pipeline prepares. */
  private readonly prepared: string[] = [];

  constructor(
    private readonly steps: readonly CompiledStep[],
    private readonly resolve: (answers: StepAnswer[]) => void,
    private readonly reject: (error: unknown) => void,
  ) {}

  /** See `PreparingClient`. */
  get statementCount(): number {
    return this.steps.length;
  }

  submit(connection: unknown): void {
    const wire = connection as PoolWire;
    writer.rewind(0);
    wire.stream.cork();
    // First, because Postgres skips what follows a step that fails.
    for (const { name } of this.steps) {
      const evicted = name === '' ? undefined : usePrepared(wire, name);
      if (evicted !== undefined) writer.close(evicted);
    }
    for (const { name, text, values, copied } of this.steps) {
      if (name === '') writer.parse(name, text);
      else if (wire.parsedStatements[name] === undefined) this.prepare(wire, name, text);
      writer.execute(name, values);
      if (!copied) continue;
      wire.stream.write(writer.flush());
      // If the COPY fails first, Postgres discards them up to the sync.
      for (const message of copied) wire.stream.write(message);
      writer.copyDone();
    }
    writer.sync();
    wire.stream.write(writer.flush());
    wire.stream.uncork();
  }

  private prepare(wire: PoolWire, name: string, text: string): void {
    writer.parse(name, text);
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

  /**
   * Rejects the pipeline. Also called when the connection is lost; then the outcome of the steps without an answer is
   * unknown.
   */
  handleError(error: unknown, connection?: unknown): void {
    for (const name of this.prepared) delete (connection as Partial<PoolWire> | undefined)?.parsedStatements?.[name];
    this.reject(error);
  }

  handleReadyForQuery(): void {
    this.resolve(this.answers);
  }

  // The rows of a COPY have been sent already, and no statement here is described or executed in parts.
  handleCopyInResponse(): void {}
  handleRowDescription(): void {}
  handlePortalSuspended(): void {}
  handleEmptyQuery(): void {}
}
