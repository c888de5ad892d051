import type { CheckResponse } from '@granary/shared/gen/granary/health/v1/CheckResponse';
import { newCall } from '@granary/shared/grpc/types';
import { worst, type Finding } from '@granary/shared/health';
import { version } from '@granary/shared/version';
import { serviceNames, type Clients, type ServiceName } from './clients';

/** The whole answer comes within a second, whatever is down. */
const checkTimeoutMs = 900;
/** An answer is reused for this long, so that polling costs nothing. */
const freshMs = 500;

type State = 'healthy' | 'degraded' | 'unhealthy';

export interface ServiceHealth {
  status: State;
  latency_ms: number;
  version: string | null;
  /** Its parts, such as `database`, stand beside these. */
  [part: string]: unknown;
}

export interface Health {
  status: State;
  version: string;
  checks: Record<'gateway' | ServiceName, ServiceHealth>;
}

/** Asks every service about itself. Parallel callers share one look. */
export function healthOf(clients: Pick<Clients, 'health'>): (requestId: string) => Promise<Health> {
  let looking: Promise<Health> | undefined;
  let lookedAtMs = 0;
  return (requestId) => {
    if (!looking || Date.now() - lookedAtMs > freshMs) {
      lookedAtMs = Date.now();
      looking = look(clients, requestId);
    }
    return looking;
  };
}

async function look({ health }: Pick<Clients, 'health'>, requestId: string): Promise<Health> {
  const found = await Promise.all(
    serviceNames.map(async (name) => [name, await ask(health[name], requestId)] as const),
  );
  const services = Object.fromEntries(found) as Record<ServiceName, ServiceHealth>;
  const gateway: ServiceHealth = { status: 'healthy', latency_ms: 0, version };
  // Each service has routes that need it, so one that is down is one too many.
  const states = found.map(([, service]) => service.status.toUpperCase() as Finding['status']);
  return { status: stateOf(worst(states)), version, checks: { gateway, ...services } };
}

async function ask(client: Clients['health'][ServiceName], requestId: string): Promise<ServiceHealth> {
  const startedAtMs = performance.now();
  const latency = () => Math.round(performance.now() - startedAtMs);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), checkTimeoutMs);
  });
  const answer = client.check({}, newCall(requestId, checkTimeoutMs)).catch(() => undefined);
  const found = await Promise.race([answer, late]);
  clearTimeout(timer);
  if (!found) return { status: 'unhealthy', latency_ms: latency(), version: null, message: 'cannot be reached' };
  return {
    ...partsOf(found),
    status: stateOf(found.status),
    latency_ms: latency(),
    version: found.version,
  };
}

function partsOf({ parts }: CheckResponse): Record<string, unknown> {
  return Object.fromEntries(
    parts.map(({ name, status, latencyMs, message }) => [
      name,
      { status: stateOf(status), latency_ms: Number(latencyMs), ...(message && { message }) },
    ]),
  );
}

function stateOf(status: CheckResponse['status']): State {
  switch (status) {
    case 'HEALTHY':
      return 'healthy';
    case 'DEGRADED':
      return 'degraded';
    default:
      return 'unhealthy';
  }
}
