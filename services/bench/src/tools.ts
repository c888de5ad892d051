import type { LoadCalls } from './load';
import type { PostgresCalls } from './postgres';
import type { Child, RunningProcess } from './processes';

/** What all cases share: the server, the load generators, and a folder for temporary files. */
export interface Tools {
  postgres: Child<PostgresCalls>;
  load: Child<LoadCalls>;
  /** For the load of others at the same time. */
  neighbour: Child<LoadCalls>;
  postgresPid: number;
  directory: string;
  /** Is called with each process at once, so that it is stopped at the end even if its start fails later. */
  onStart: (child: RunningProcess) => void;
}

/** How often and how long everything is measured. */
export interface Lengths {
  rounds: number;
  seconds: number;
}
