import type { Status } from '../gen/granary/health/v1/Status';

/** The state of one thing that a service needs. */
export interface Finding {
  status: Exclude<Status, 'STATUS_UNSPECIFIED'>;
  /** A sentence for a person; never a host, never a credential. */
  message?: string;
  /** Whether an unhealthy part still allows reads, while writes are refused because of it. */
  servesReads?: boolean;
}

/** Examines one thing that a service needs. A check that throws counts as unhealthy. */
export type Check = () => Promise<Finding>;

export const healthy: Finding = { status: 'HEALTHY' };

export const degraded = (message: string): Finding => ({ status: 'DEGRADED', message });

const order: readonly Status[] = ['HEALTHY', 'DEGRADED', 'UNHEALTHY'];

/** The worst of several states; healthy if there are none. */
export function worst(states: readonly Status[]): Finding['status'] {
  const severity = Math.max(0, ...states.map((state) => order.indexOf(state)));
  return order[severity] as Finding['status'];
}
