import type { Call } from '@granary/shared/rpc/types';
import { traced } from '@granary/shared/telemetry/trace';
import type { PoolContext } from '../postgres/databases';
import type { UsagePublisher } from '../usage/publisher';
import type { Committer } from './committer';

/** The part of the committer that one call uses. */
export type CallCommitter = Pick<Committer, 'collections' | 'submit' | 'parseWithin'>;

/** The context of a handler of writes. */
export interface WriteContext extends PoolContext {
  committer: CallCommitter;
}

/**
 * The committer for one call. A traced write has a span from its submission to the end of its transaction, which it may
 * share with others, and the usage event of its collection belongs to the same trace.
 */
export function committerFor(committer: Committer, usage: UsagePublisher, { trace }: Call): CallCommitter {
  if (trace === undefined) return committer;
  const attributes = { 'db.system.name': 'postgresql' };
  return {
    collections: committer.collections,
    parseWithin: (bytes, parse) => committer.parseWithin(bytes, parse),
    submit: (app, write) =>
      traced({ service: 'data', name: 'commit', kind: 'client', attributes }, trace, async (within) => {
        const committed = await committer.submit(app, write);
        if (within !== undefined) usage.touchTraced(app.appId, committed.collection, within);
        return committed;
      }),
  };
}
