/** Every process that calls another one or is called. */
export const serviceNames = ['gateway', 'data', 'blobs', 'finance', 'payments', 'tasks'] as const;
export type ServiceName = (typeof serviceNames)[number];

/**
 * The callers of each service. The methods that each may call are declared beside the handlers, see rpc/access.ts; a
 * test compares the two.
 */
export const callersOf: Readonly<Record<ServiceName, readonly ServiceName[]>> = {
  gateway: [],
  data: ['gateway', 'blobs', 'finance', 'payments', 'tasks'],
  blobs: ['gateway', 'finance'],
  finance: ['gateway', 'payments'],
  payments: ['gateway', 'finance'],
  tasks: ['gateway'],
};

export function isServiceName(text: string): text is ServiceName {
  return (serviceNames as readonly string[]).includes(text);
}
