import type { Backends } from '../backends/backends';
import type { Proof, Release } from '../proof/proof';
import type { Say } from '../say';

/** The parts that steps use besides the proof. */
export interface StepParts {
  /** The folder of the checkout. */
  root: string;
  /** The folder for temporary files. */
  directory: string;
  /** The folder with the CRDs of others that resources of the chart need. */
  definitions: string;
  releaseBefore: Release;
  /** The least number of requests beside each change that is counted. */
  requestsMin: number;
  /** Postgres and MinIO beside the pods. */
  backends: Backends;
  /**
   * Ends this cluster and the backends beside its pods, and starts others with the same Secrets and the same bucket.
   */
  replaceCluster: () => Promise<void>;
  say: Say;
}

export interface Step {
  title: string;
  /** Whether the short run includes the step. */
  isShort?: boolean;
  /** Whether the step begins only if this release is running. */
  ofThisRelease?: boolean;
  /** Throws an error for what failed, or returns what it measured. */
  run: (proof: Proof, parts: StepParts) => Promise<string | void>;
}
