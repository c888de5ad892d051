import type { Position } from '../gen/granary/events/v1/Position';

/** The position before all events. */
export const start: Position = { epoch: '0', xid: '0', pos: '0' };

export function samePosition(a: Position, b: Position): boolean {
  return a.epoch === b.epoch && a.xid === b.xid && a.pos === b.pos;
}
