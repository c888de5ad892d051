import type { Backends } from '../backends/backends';
import type { Proof, Release } from '../proof/proof';
import type { Say } from '../say';

/** What steps use besides the proof. */
export interface StepParts {
  /** The checkout. */
  root: string;
  /** For temporary files. */
  directory: string;
  /** The folder with the definitions of the resources of others. */
  definitions: string;
  releaseBefore: Release;
  /** Requests that are made beside each change that is counted, at least. */
  requestsMin: number;
  /** Postgres and MinIO beside the pods. */
  backends: Backends;
  /** Ends this cluster and what is beside its pods, and starts others with the same Secrets and the same bucket. */
  replaceCluster: () => Promise<void>;
  say: Say;
}

export interface Step {
  title: string;
  /** Whether the short run takes it too. */
  isShort?: boolean;
  /** Whether it begins only if this release is what runs. */
  ofThisRelease?: boolean;
  /** Throws an error for what failed, or returns what it measured. */
  run: (proof: Proof, parts: StepParts) => Promise<string | void>;
}
