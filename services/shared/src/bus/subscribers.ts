import type { OutboxDefinition } from '../gen/granary/events/v1/Outbox';
import type { Implementation } from '../rpc/implementation';
import type { ServiceName } from '../trust/services';

const isOwn = (request: unknown, caller: ServiceName): boolean =>
  `${(request as { consumer: string }).consumer}-`.startsWith(`${caller}-`);

/**
 * An Outbox that only these services may read, each as its own consumers: those with the name of the service, or with a
 * name that begins with it and a dash. A service must not move the position of another one's consumer, because events
 * that all consumers have read are removed.
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
