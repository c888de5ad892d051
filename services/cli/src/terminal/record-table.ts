import { plainText } from '../exact-json.ts';
import { tableLines } from './table.ts';
import type { Terminal } from './terminal.ts';

export type JsonRecord = Readonly<Record<string, unknown>>;

/** Columns below this width show nothing: as many are left out as do not fit. */
const narrowest = 8;
const gap = 2;

/** The fields of records: `id` first, the others in the order in which they appear. */
export function fieldsOf(records: readonly JsonRecord[]): string[] {
  const fields = new Set<string>();
  for (const record of records) for (const field of Object.keys(record)) fields.add(field);
  const hasId = fields.delete('id');
  return hasId ? ['id', ...fields] : [...fields];
}

/** Prints records as a table. Says which fields it has no room for. */
export async function printRecords(terminal: Terminal, records: readonly JsonRecord[]): Promise<void> {
  const fields = fieldsOf(records);
  const room = Math.max(1, Math.floor((terminal.width + gap) / (narrowest + gap)));
  const shown = fields.slice(0, room);
  const rows = records.map((record) => shown.map((field) => plainText(record[field])));
  const [head, ...lines] = tableLines([shown, ...rows], terminal.width);
  await terminal.print(terminal.styled('bold', head!));
  for (const line of lines) await terminal.print(line);
  const hidden = fields.slice(room);
  if (hidden.length > 0) {
    terminal.say(`There is no room for ${hidden.join(', ')}: --select chooses fields, and --json prints all.`);
  }
}
