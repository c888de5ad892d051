import type { Row, RowReader } from '../../postgres/rows';

/** Reads the texts of one row; empty where they are null, or there is no row. */
export class TextsReader implements RowReader<readonly string[]> {
  readonly #texts: string[];

  constructor(columns: number) {
    this.#texts = Array.from({ length: columns }, () => '');
  }

  row(row: Row): void {
    for (let index = 0; index < this.#texts.length; index += 1)
      this.#texts[index] = row.isNull(index) ? '' : row.text(index);
  }

  end(): readonly string[] {
    return this.#texts;
  }
}
