/**
 * One row of a result. Columns count from 0; a null column has no bytes, and a column that is not there is a
 * RangeError.
 */
export interface Row {
  isNull(column: number): boolean;
  /** The text of the column as UTF-8: a view of the receive buffer. */
  bytes(column: number): Buffer;
  byteLength(column: number): number;
  /**
   * Copies the column into `target` at `start`; returns the number of bytes. Throws RangeError when it does not fit.
   */
  copy(column: number, target: Buffer, start: number): number;
  text(column: number): string;
}

/** Reads the rows of one statement as they arrive. */
export interface RowReader<T> {
  /** Called for each row; it and what it returns are only valid during the call. */
  row(row: Row): void;
  /** Called after the last row; returns the result of the statement. */
  end(): T;
}
