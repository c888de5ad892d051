/** The place of a change among those of its app, see docs/feed.md; `row` is that of a row of a view at that place. */
export interface Position {
  height: number;
  place: number;
  row: number;
}

/** The position that a cursor of the data service names. */
export function positionOf(cursor: string): Position {
  const [height = '', place = '', row = '0'] = cursor.split('-', 1)[0]!.split('.');
  return { height: Number(height), place: Number(place), row: Number(row) };
}

/** Negative, zero or positive, as one is before, at or behind the other. */
export const comparePositions = (one: Position, other: Position): number =>
  one.height - other.height || one.place - other.place || one.row - other.row;
