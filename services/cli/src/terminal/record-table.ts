import { plainText } from '../exact-json.ts';
import { gap, narrowest, printTable } from './table.ts';
import type { Terminal } from './terminal.ts';

export type JsonRecord = Readonly<Record<string, unknown>>;

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
  await printTable(terminal, [shown, ...rows]);
  const hidden = fields.slice(room);
  if (hidden.length > 0) {
    terminal.say(`There is no room for ${hidden.join(', ')}: --select chooses fields, and --json prints all.`);
  }
}
