import type { Pool } from '@granary/shared/postgres/pool';

/** The databases of the handlers, which take what they need of it. */
export interface Databases {
  pool: Pool;
  /** The pool for what must not wait: look-ups of keys and collections, and requests to cancel a statement. */
  fast: Pool;
}

export type PoolContext = Pick<Databases, 'pool'>;
export type FastContext = Pick<Databases, 'fast'>;
