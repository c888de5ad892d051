import type { FieldMessages } from '@granary/shared/errors';
import type { ColumnType, CsvOptions } from './record';

/** The cells of a record, and which of them are empty within quotes. */
export interface Cells {
  readonly texts: readonly string[];
  readonly quotedEmpty: ReadonlySet<number>;
}

/** A field of the documents: that of a column, or an object of fields. */
type Field = ColumnField | ObjectField;

interface ColumnField {
  /** Its name as JSON, with a colon. */
  readonly key: string;
  readonly column: number;
  readonly path: string;
  readonly type: ColumnType;
  readonly members: undefined;
}

interface ObjectField {
  readonly key: string;
  readonly members: Field[];
}

const numberText = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
/** A character that JSON escapes: a quote, a backslash, or one below the space. */
const escapedCharacter = /[^ !#-[\]-\uffff]/;

const mustBe: Readonly<Record<ColumnType, string>> = {
  string: 'must be a string',
  number: 'must be a number',
  boolean: 'must be true or false',
  json: 'must be JSON',
};

/** Writes the cells of a record as the JSON text of a document, with the fields in the order of the columns. */
export class DocumentWriter {
  /** Cells of the last record that are not of their type. */
  problems: FieldMessages | undefined;
  private readonly fields: Field[] = [];
  /** The value of an empty cell without quotes, as JSON, of a text and of anything else. */
  private readonly emptyText: string | undefined;
  private readonly emptyOther: string | undefined;

  /** The columns have no problem, as `columnsProblem` finds them. */
  constructor(
    readonly columns: readonly string[],
    options: CsvOptions,
  ) {
    this.emptyOther = options.empty === 'null' ? 'null' : undefined;
    this.emptyText = options.empty === 'string' ? '""' : this.emptyOther;
    const objects = new Map<string, Field[]>();
    for (const [column, path] of columns.entries()) {
      const steps = path.split('.');
      const last = steps.pop()!;
      let list = this.fields;
      let begin = '';
      for (const step of steps) {
        begin += `${step}.`;
        let members = objects.get(begin);
        if (!members) {
          objects.set(begin, (members = []));
          list.push({ key: keyOf(step), members });
        }
        list = members;
      }
      list.push({ key: keyOf(last), column, path, type: options.typeOf(path), members: undefined });
    }
  }

  /** The text of a document, undefined where there are `problems`. As many cells as columns are expected. */
  write(cells: Cells): string | undefined {
    this.problems = undefined;
    const text = `{${this.members(this.fields, cells)}}`;
    return this.problems ? undefined : text;
  }

  private members(fields: readonly Field[], cells: Cells): string {
    let text = '';
    for (const field of fields) {
      let value: string | undefined;
      if (field.members) {
        const members = this.members(field.members, cells);
        // An object all of whose cells are missing is missing too.
        if (members !== '') value = `{${members}}`;
      } else {
        const cell = cells.texts[field.column]!;
        value = cell === '' ? this.emptyValue(field, cells) : this.value(field, cell);
      }
      if (value !== undefined) text += text === '' ? field.key + value : `,${field.key}${value}`;
    }
    return text;
  }

  /** Some programs write quotes around every cell, also where there is no value of a type that cannot be empty. */
  private emptyValue({ type, column }: ColumnField, { quotedEmpty }: Cells): string | undefined {
    if (type !== 'string') return this.emptyOther;
    return quotedEmpty.has(column) ? '""' : this.emptyText;
  }

  private value(field: ColumnField, cell: string): string | undefined {
    if (field.type === 'string') return quoted(cell);
    const value = typedValue(field.type, cell);
    if (value === undefined) this.addProblem(field);
    return value;
  }

  private addProblem({ path, type }: ColumnField): void {
    this.problems ??= {};
    if (Object.keys(this.problems).length < problemsMax) this.problems[path] = [mustBe[type]];
  }
}

/** Cells of a record that are named in its refusal, at most. */
const problemsMax = 20;

const keyOf = (name: string): string => `${JSON.stringify(name)}:`;

const quoted = (text: string): string => (escapedCharacter.test(text) ? JSON.stringify(text) : `"${text}"`);

/** The JSON text of a cell, undefined where it is not of the type. */
function typedValue(type: ColumnType, cell: string): string | undefined {
  if (type === 'json') return isJson(cell) ? cell : undefined;
  const text = cell.trim();
  if (type === 'number') return numberText.test(text) ? text : undefined;
  const word = text.toLowerCase();
  return word === 'true' || word === 'false' ? word : undefined;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
