import type { Call } from '@granary/shared/rpc/types';
import { traced } from '@granary/shared/telemetry/trace';
import type { Committer } from './committer';
import type { UsagePublisher } from '../usage/publisher';

/** What writing needs of the committer. */
export type Committing = Pick<Committer, 'handles' | 'submit' | 'holding'>;

/**
 * The committer for one call. A write that is traced has a span from its submission to the end of its transaction,
 * which it may share with others, and the event that tells of what its collection then uses belongs to the same trace.
 */
export function committerFor(committer: Committer, usage: UsagePublisher, { trace }: Call): Committing {
  if (trace === undefined) return committer;
  const attributes = { 'db.system.name': 'postgresql' };
  return {
    handles: committer.handles,
    holding: (bytes, work) => committer.holding(bytes, work),
    submit: (app, write) =>
      traced({ service: 'data', name: 'commit', kind: 'client', attributes }, trace, async (within) => {
        const committed = await committer.submit(app, write);
        if (within !== undefined) usage.touchTraced(app.appId, committed.collection, within);
        return committed;
      }),
  };
}
