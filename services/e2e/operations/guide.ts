import { readFileSync } from 'node:fs';
import path from 'node:path';

const folder = path.join(__dirname, '../../../docs/operations');

/**
 * The pages for operators that have the settings of the services; those of the backup commands are a page of their own.
 */
export const operationsGuide = ['run', 'configure', 'observe', 'scale']
  .map((page) => readFileSync(path.join(folder, `${page}.md`), 'utf8'))
  .join('\n');
