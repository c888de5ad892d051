import type { Access, Limits } from './access';
import type { Handlers, ServiceDefinition } from './types';

/** One gRPC service and its handlers, ready for a server or for direct calls in the same process. */
export interface Implementation<D extends ServiceDefinition = ServiceDefinition> {
  definition: D;
  handlers: Handlers<D>;
  /** Which services may call it from another process. */
  access?: Access;
  limits?: Limits;
}
