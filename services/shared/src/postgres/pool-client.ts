import type { Socket } from 'node:net';
import pg from 'pg';
import { PreparedStatements } from './prepared';

/** What is used of pg's connection beside its documented interface. */
export interface PoolWire {
  stream: Socket;
  /** The texts of what is prepared, by name. */
  parsedStatements: Record<string, string>;
  close: (message: { type: 'S'; name: string }) => void;
}

const prepared = new WeakMap<PoolWire, PreparedStatements>();

/** Records a use of a named statement on a connection. Returns the name of another one that the sender must close first. */
export function usePrepared(wire: PoolWire, name: string): string | undefined {
  let statements = prepared.get(wire);
  if (!statements) prepared.set(wire, (statements = new PreparedStatements()));
  const evicted = statements.use(name);
  if (evicted !== undefined) delete wire.parsedStatements[evicted];
  return evicted;
}

type Named = pg.Query & { name: string };
type Answered = (error: Error | null | undefined, result: pg.QueryResult) => void;

/** In place of `submit` of a named statement: closes the one that it replaces. */
function submitNamed(this: Named, connection: pg.Connection): void {
  const wire = connection as unknown as PoolWire;
  const evicted = usePrepared(wire, this.name);
  if (evicted === undefined) return pg.Query.prototype.submit.call(this, connection);
  wire.stream.cork();
  try {
    // It follows a Sync, so Postgres does not skip it.
    wire.close({ type: 'S', name: evicted });
    return pg.Query.prototype.submit.call(this, connection);
  } finally {
    wire.stream.uncork();
  }
}

function namedQuery(config: pg.QueryConfig): Named {
  const query = new pg.Query(config) as Named;
  query.submit = submitNamed;
  return query;
}

const isNamed = (config: unknown): config is pg.QueryConfig =>
  typeof config === 'object' && config !== null && 'name' in config && !('submit' in config);

/** The client of our pools: of the statements with names, each connection keeps the most recently used prepared. */
export class PreparingClient extends pg.Client {
  override query(...args: unknown[]): never {
    return this.#query(args) as never;
  }

  #query(args: unknown[]): unknown {
    const [config] = args;
    const query = super.query.bind(this) as (...args: unknown[]) => unknown;
    if (!isNamed(config)) return query(...args);
    const callback = args.find((arg): arg is Answered => typeof arg === 'function');
    if (callback) return query(namedQuery(config), callback);
    return new Promise((resolve, reject) => {
      query(namedQuery(config), (error: Error | null, result: pg.QueryResult) =>
        error ? reject(error) : resolve(result),
      );
    });
  }
}
