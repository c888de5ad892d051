import type { Command } from '@granary/shared/gen/granary/finance/v1/Command';
import { transferId } from '@granary/shared/money/transfer-id';

// The ids are made from those of the holds and the time that these have in them: all callers send the same command for
// a hold.

export const postOf = (kind: string, holdId: string, time: Date, amount: bigint): Command => ({
  id: transferId(time, 'post', holdId),
  kind,
  post: { holdId, amount: amount.toString() },
});

export const voidOf = (kind: string, holdId: string, time: Date): Command => ({
  id: transferId(time, 'void', holdId),
  kind,
  void: { holdId },
});
