import { invalid, ServiceError } from '@granary/shared/errors';
import { CURSOR_AHEAD } from '../chain/commit-log';

export const CURSOR_GONE = 'CURSOR_GONE';

/**
 * A position among the changes of an app: behind those of its commits below `height`, and behind the first `place` of
 * that one. Erasures after a commit have the places behind its documents. `row` is that of the last changed row of a
 * view which was read at this place, by its number in the log of rows; 0: none.
 */
export interface Position {
  height: bigint;
  place: number;
  row: bigint;
}

/** Negative, zero or positive, as one is before, at or behind the other. */
export const comparePositions = (one: Position, other: Position): number =>
  compare(one.height, other.height) || one.place - other.place || compare(one.row, other.row);

const compare = (one: bigint, other: bigint): number => (one < other ? -1 : one > other ? 1 : 0);

/** Where a feed begins: at the head, behind a height with all that follows it, or where another feed has ended. */
export type Since =
  | { kind: 'now' }
  | { kind: 'height'; height: bigint }
  | { kind: 'cursor'; position: Position; hash: string; initialEnd: Position | undefined };

/** Hex digits of the hash of a commit that a cursor has. */
const hashDigits = 8;

/** Parses `now`, a height, or a cursor. Throws VALIDATION_FAILED. */
export function parseSince(text: string): Since {
  if (text === 'now') return { kind: 'now' };
  if (/^\d{1,15}$/.test(text)) return { kind: 'height', height: BigInt(text) };
  const [, height, place, rowText = '0', hash, endHeight, endPlace] =
    /^(\d{1,15})\.(\d{1,9})(?:\.(\d{1,15}))?-([0-9a-f]{8})(?:~(\d{1,15})\.(\d{1,9}))?$/.exec(text) ?? [];
  if (height !== undefined && place !== undefined && hash !== undefined) {
    const initialEnd = endHeight === undefined ? undefined : positionOf(endHeight, endPlace!);
    return { kind: 'cursor', position: positionOf(height, place, rowText), hash, initialEnd };
  }
  throw unknownPosition();
}

const unknownPosition = (): ServiceError =>
  invalid('The position is not valid', { since: ['must be now, a height, or a cursor of this feed'] });

const positionOf = (height: string, place: string, rowText = '0'): Position => ({
  height: BigInt(height),
  place: Number(place),
  row: BigInt(rowText),
});

/** The beginning of all logs. */
export const isStart = ({ height, place, row }: Position): boolean => height === 0n && place === 0 && row === 0n;

/**
 * The text of a position; `hash` is that of the commit at its height. `initialEnd`: the end of the log when the feed
 * began at its start. It is written as long as the position is before it: the rows of views that such a feed has are in
 * the state of then, or a newer one.
 */
export function formatCursor(position: Position, hash: Buffer, initialEnd?: Position): string {
  const { height, place, row } = position;
  const text = `${height}.${place}${row === 0n ? '' : `.${row}`}-${shortHash(hash)}`;
  return initialEnd && comparePositions(position, initialEnd) < 0
    ? `${text}~${initialEnd.height}.${initialEnd.place}`
    : text;
}

/** The part of the hash of a commit that a cursor has, by which it is told from one of another history. */
export const shortHash = (hash: Buffer): string => hash.toString('hex', 0, hashDigits / 2);

export const cursorAhead = (head: bigint): ServiceError =>
  invalid(
    `The position is beyond the last commit, which has the height ${head}`,
    { since: [`must not be beyond the height ${head}`] },
    CURSOR_AHEAD,
  );

export const rowsGone = (view: string): ServiceError =>
  new ServiceError(
    'FAILED_PRECONDITION',
    CURSOR_GONE,
    `The changes of the view ${view} are not all kept from there on: follow it from 0 on, which gives all of its rows`,
  );

export const cursorGone = (): ServiceError =>
  new ServiceError(
    'FAILED_PRECONDITION',
    CURSOR_GONE,
    'The cursor is of another history of this app, from before a backup was restored: read its documents anew',
  );
