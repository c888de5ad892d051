import { newCall, type Call } from '@granary/shared/rpc/types';
import type { ObjectStore } from '../stores/store';
import { traced, type SpanStart } from '@granary/shared/telemetry/trace';
import type { BlobsContext } from '../records/context';

const start = (name: string, kind: SpanStart['kind']): SpanStart => ({ service: 'blobs', name, kind });

/**
 * Runs a transfer in a span if it is traced; calls to the object store and to `data` become its children.
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

/** A call to `data` in the trace of the transfer. */
export function callWithin({ trace }: BlobsContext, requestId: string, timeoutMs: number): Call {
  return { ...newCall(requestId, timeoutMs), trace };
}

/** Adds spans for receiving an object, making it durable, and opening it. */
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
