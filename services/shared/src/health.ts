import type { HealthDefinition } from './gen/granary/health/v1/Health';
import type { Part } from './gen/granary/health/v1/Part';
import type { Status } from './gen/granary/health/v1/Status';
import { loadService } from './grpc/protos';
import type { Implementation } from './grpc/server';
import type { Pool } from './postgres/pool';
import type { AccessTo } from './trust/access';
import { version } from './version';

export const healthDefinition = loadService<HealthDefinition>('health', 'Health');

/** The gateway answers to the outside for all of them; probes of an orchestrator look at the port. */
export const healthAccess = { gateway: '*' } satisfies AccessTo<HealthDefinition>;

export interface Finding {
  status: Exclude<Status, 'STATUS_UNSPECIFIED'>;
  /** A sentence for a person; never a host, never a credential. */
  message?: string;
}

/** Looks at one thing that a service needs. To throw is to find it unhealthy. */
export type Check = () => Promise<Finding>;

/** A check that takes longer has failed: the whole answer must come within a second. */
const checkTimeoutMs = 700;
/** An answer is reused for this long, so that polling health costs nothing. */
const freshMs = 500;

export const healthy: Finding = { status: 'HEALTHY' };

/** The Health service of a process, from its checks by name. Parallel callers share one look. */
export function healthImplementation(checks: Record<string, Check>): Implementation<HealthDefinition> {
  let looking: Promise<Part[]> | undefined;
  let lookedAtMs = 0;
  const look = () => {
    if (!looking || Date.now() - lookedAtMs > freshMs) {
      lookedAtMs = Date.now();
      looking = Promise.all(Object.entries(checks).map(([name, check]) => examine(name, check)));
    }
    return looking;
  };
  return {
    definition: healthDefinition,
    handlers: {
      check: async () => {
        const parts = await look();
        return { status: worst(parts.map((part) => part.status)), version, parts };
      },
    },
  };
}

async function examine(name: string, check: Check): Promise<Part> {
  const startedMs = Date.now();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Finding>((resolve) => {
    timer = setTimeout(() => resolve({ status: 'UNHEALTHY', message: 'did not answer in time' }), checkTimeoutMs);
  });
  const found = await Promise.race([check(), late]).catch((): Finding => ({
    status: 'UNHEALTHY',
    message: 'cannot be reached',
  }));
  clearTimeout(timer);
  return { name, status: found.status, latencyMs: String(Date.now() - startedMs), message: found.message ?? '' };
}

const order: readonly Status[] = ['HEALTHY', 'DEGRADED', 'UNHEALTHY'];

/** The worst of several states; of none, healthy. */
export function worst(states: readonly Status[]): Finding['status'] {
  const at = Math.max(0, ...states.map((state) => order.indexOf(state)));
  return order[at] as Finding['status'];
}

/** Whether a database answers. */
export function databaseCheck(pool: Pool): Check {
  return async () => {
    await pool.query('select 1');
    return healthy;
  };
}
