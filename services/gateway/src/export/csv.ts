import { cellText, readDocument, type Columns } from './columns';
import { linesIn } from './json-lines';

/** Characters at the beginning of a text by which a spreadsheet takes it for a formula. */
const formulaStart = /^[=+\-@\t\r\n＝＋－＠]/;
const needsQuotes = /[",\r\n]/;
/**
 * A name that an import would take for something else without quotes: spaces around it for none, and a brace or bracket
 * at the beginning of a file for JSON.
 */
const needsQuotesAsName = /^[\s{[]|\s$/;

/** Writes documents as CSV after RFC 4180, with a line of the names of the columns. */
export class CsvWriter {
  constructor(
    private readonly columns: Columns,
    private readonly escapesFormulas: boolean,
  ) {}

  head(): Buffer {
    return Buffer.from(`${this.columns.names.map((name) => this.nameCell(name)).join(',')}\r\n`);
  }

  rows(lines: Buffer): Buffer {
    let text = '';
    for (const line of linesIn(lines)) {
      const values = this.columns.valuesOf(readDocument(line));
      // A formula can only come from a text.
      text += this.line(values.map((value) => (typeof value === 'string' ? value : { plain: cellText(value) })));
    }
    return Buffer.from(text);
  }

  private line(cells: ReadonlyArray<string | { plain: string | undefined }>): string {
    return `${cells.map((cell) => (typeof cell === 'string' ? this.textCell(cell) : quotedCell(cell.plain ?? ''))).join(',')}\r\n`;
  }

  private nameCell(name: string): string {
    const cell = this.textCell(name);
    return needsQuotesAsName.test(cell) ? `"${cell}"` : cell;
  }

  /** An empty text has quotes, unlike a value that is missing or null. */
  private textCell(text: string): string {
    if (text === '') return '""';
    return quotedCell(this.escapesFormulas && formulaStart.test(text) ? `'${text}` : text);
  }
}

const quotedCell = (text: string): string => (needsQuotes.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
