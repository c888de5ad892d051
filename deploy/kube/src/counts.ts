/** How many steps passed and failed. */
export interface Counts {
  passed: number;
  failed: number;
  /** How many steps were not possible here. */
  skipped?: number;
  /** The reason why a step failed. */
  failure?: string;
}
