/** How many steps passed and failed. */
export interface Counts {
  passed: number;
  failed: number;
  /** How many were not possible here. */
  skipped?: number;
  /** Says why a step failed. */
  failure?: string;
}
