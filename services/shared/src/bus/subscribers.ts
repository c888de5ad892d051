import type { OutboxDefinition } from '../gen/granary/events/v1/Outbox';
import type { Implementation } from '../rpc/implementation';
import type { ServiceName } from '../trust/services';

const isOwn = (request: unknown, caller: ServiceName): boolean =>
  `${(request as { consumer: string }).consumer}-`.startsWith(`${caller}-`);

/**
 * An Outbox that only these services may read, each as a consumer of its own: one that is called like the service, or
 * begins with its name and a dash. Nobody is to move another's progress, for what all have read is removed.
 */
export function readableBy(
  subscribers: readonly ServiceName[],
  outbox: Implementation<OutboxDefinition>,
): Implementation<OutboxDefinition> {
  return {
    ...outbox,
    access: Object.fromEntries(subscribers.map((service) => [service, '*'])),
    limits: { read: isOwn, readAggregate: isOwn },
  };
}
