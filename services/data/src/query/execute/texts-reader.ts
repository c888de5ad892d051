import type { Row, RowReader } from '../../postgres/rows';

/** Reads the texts of one row; empty where they are null, or there is no row. */
export class TextsReader implements RowReader<readonly string[]> {
  readonly #texts: string[];

  constructor(columns: number) {
    this.#texts = Array.from({ length: columns }, () => '');
  }

  row(row: Row): void {
    for (let at = 0; at < this.#texts.length; at += 1) this.#texts[at] = row.isNull(at) ? '' : row.text(at);
  }

  end(): readonly string[] {
    return this.#texts;
  }
}
