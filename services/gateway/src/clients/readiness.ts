import { newCall } from '@granary/shared/rpc/types';
import { newId } from '@granary/shared/ids';
import type { ReadinessCheck } from '@granary/shared/telemetry/metrics-server';
import type { Clients } from './clients';

/** The limit is less than the default timeout of the probes of Kubernetes, which is 1 s. */
const callTimeoutMs = 800;

/**
 * Ready as soon as `data` has answered once, until the gateway stops. What happens to `data` later does not matter:
 * then a gateway answers 503 with Retry-After, which is better than a load balancer without any gateway.
 */
export function readinessOf({ health }: Pick<Clients, 'health'>, isStopping: () => boolean): ReadinessCheck {
  let hasReachedData = false;
  return async () => {
    if (!hasReachedData && !isStopping()) {
      hasReachedData = await health.data.check({}, newCall(newId(''), callTimeoutMs)).then(
        () => true,
        () => false,
      );
    }
    if (isStopping()) return 'stopping';
    return hasReachedData ? 'ready' : 'starting';
  };
}
