import type { LoadCalls } from './load';
import type { PostgresCalls } from './postgres';
import type { Child, RunningProcess } from './processes';

/** The tools that all cases share: the server, the load generators, and a folder for temporary files. */
export interface Tools {
  postgres: Child<PostgresCalls>;
  load: Child<LoadCalls>;
  /** The load generator for the load of others at the same time. */
  neighbour: Child<LoadCalls>;
  postgresPid: number;
  directory: string;
  /**
   * Must be called with each process as soon as it runs, so that the process is stopped at the end even if its start
   * fails later.
   */
  onStart: (child: RunningProcess) => void;
}

/** How often and how long everything is measured. */
export interface Lengths {
  rounds: number;
  seconds: number;
}
