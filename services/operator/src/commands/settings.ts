import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { defineCommand } from '../program/command';
import { replaceTables, settingsTable, tableNames } from '../settings/tables';

const usage = `Prints the settings of the services, as tables of Markdown made from their schemas.

  npm run settings [-- table]              one table, or all of them
  npm run settings -- --write page,…       replaces the tables between the marks of these pages

Tables: ${tableNames.join(', ')}
`;

export const settings = defineCommand({
  usage,
  options: { write: { type: 'string' } },
  positionalsMax: 1,
  run: async ({ write }, [table], { directory, say }) => {
    if (write === undefined) {
      for (const name of table === undefined ? tableNames : [table]) say(`## ${name}\n\n${settingsTable(name)}\n`);
      return;
    }
    if (table !== undefined) throw new Error(`--write replaces all tables of a page; ${table} is not expected.`);
    for (const page of write.split(',')) {
      const file = path.resolve(directory, page);
      const text = await readFile(file, 'utf8');
      const replaced = replaceTables(text);
      if (replaced !== text) await writeFile(file, replaced);
      say(`${page}: ${replaced === text ? 'is up to date' : 'written'}`);
    }
  },
});
