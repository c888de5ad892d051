import { ServiceError } from '@granary/shared/errors';
import type { CheckResponse } from '@granary/shared/gen/granary/health/v1/CheckResponse';
import { newCall } from '@granary/shared/rpc/types';
import { worst, type Finding } from '@granary/shared/health/check';
import { newId } from '@granary/shared/ids';
import { cachedFor } from '@granary/shared/concurrency/ttl-cache';
import { Probe, type Look } from '@granary/shared/health/probe';
import { version } from '@granary/shared/version';
import { serviceNames, type Clients, type ServiceName } from './clients';

/** A service may take this long to answer; the whole answer comes within a second, whatever is down. */
const callTimeoutMs = 800;
/** A service that has not answered for this long is late. */
const lateAfterMs = 900;
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

/** The answer of `/health`, and what `/readyz` decides by. */
export interface HealthReport {
  health: Health;
  /** Whether documents can be read. A database that takes no writes does not change it. */
  servesReads: boolean;
}

/** Asks every service about itself. Parallel callers share one look. */
export function healthOf(clients: Pick<Clients, 'health'>, unhealthyAfterMs: number): () => Promise<HealthReport> {
  const limits = { answerMs: lateAfterMs, overdueMs: unhealthyAfterMs };
  const probes = serviceNames.map((name) => {
    const check = () => clients.health[name].check({}, newCall(newId(''), callTimeoutMs));
    return [name, new Probe(check, limits, isLate)] as const;
  });
  return cachedFor(freshMs, async () =>
    reportOf(await Promise.all(probes.map(async ([name, probe]) => [name, await probe.look()] as const))),
  );
}

const isLate = (error: unknown) => error instanceof ServiceError && error.code === 'DEADLINE_EXCEEDED';

function reportOf(looks: ReadonlyArray<readonly [ServiceName, Look<CheckResponse>]>): HealthReport {
  const entries = looks.map(([name, look]) => [name, serviceHealth(look)] as const);
  const services = Object.fromEntries(entries) as Record<ServiceName, ServiceHealth>;
  const gateway: ServiceHealth = { status: 'healthy', latency_ms: 0, version };
  // Each service has routes that need it, so one that is down is one too many.
  const states = entries.map(([, service]) => service.status.toUpperCase() as Finding['status']);
  const data = looks.find(([name]) => name === 'data')?.[1];
  return {
    health: { status: stateOf(worst(states)), version, checks: { gateway, ...services } },
    servesReads: data !== undefined && canRead(data),
  };
}

function canRead(data: Look<CheckResponse>): boolean {
  if (data.state !== 'answered') return data.state === 'late';
  return data.value.parts.every(({ status, servesReads }) => status !== 'UNHEALTHY' || servesReads);
}

function serviceHealth(look: Look<CheckResponse>): ServiceHealth {
  const latency_ms = Math.round(look.latencyMs);
  if (look.state === 'answered') {
    const { status, version: ofService } = look.value;
    const isSlow = look.latencyMs > lateAfterMs && status === 'HEALTHY';
    return { ...partsOf(look.value), status: isSlow ? 'degraded' : stateOf(status), latency_ms, version: ofService };
  }
  if (look.state === 'late') return { status: 'degraded', latency_ms, version: null, message: 'has not answered yet' };
  const message = look.state === 'overdue' ? 'did not answer in time' : 'cannot be reached';
  return { status: 'unhealthy', latency_ms, version: null, message };
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
