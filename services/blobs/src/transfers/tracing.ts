import { newCall, type Call } from '@granary/shared/rpc/types';
import type { ObjectStore } from '@granary/shared/objects/store';
import { traced, type SpanStart } from '@granary/shared/telemetry/trace';
import type { BlobsContext } from '../records/context';

const start = (name: string, kind: SpanStart['kind']): SpanStart => ({ service: 'blobs', name, kind });

/**
 * Does the work of a transfer, in a span when it is traced; what the work asks of the object store and of data then
 * belongs to that.
 */
export function tracedTransfer(
  context: BlobsContext,
  name: string,
  trace: string | undefined,
  work: (context: BlobsContext) => Promise<void>,
): Promise<void> {
  return traced(start(name, 'server'), trace, (within) =>
    work(within === undefined ? context : { ...context, trace: within, store: tracedStore(context.store, within) }),
  );
}

/** A call that belongs to the transfer of the context. */
export function callWithin({ trace }: BlobsContext, requestId: string, timeoutMs: number): Call {
  return { ...newCall(requestId, timeoutMs), trace };
}

/** Spans for taking in the bytes of an object, for making it durable, and for opening one. */
function tracedStore(store: ObjectStore, trace: string): ObjectStore {
  const span = <T>(name: string, work: () => Promise<T>) => traced(start(name, 'client'), trace, work);
  return {
    ...store,
    receive: async (source) => {
      const received = await span('object receive', () => store.receive(source));
      return { ...received, keep: () => span('object keep', () => received.keep()) };
    },
    read: (key, range) => span('object read', () => store.read(key, range)),
  };
}
