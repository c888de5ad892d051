import { writeFile } from 'node:fs/promises';
import type { App, ImportReport } from '@granary/client';
import { jsonText } from '../exact-json.ts';
import { Failure, isGranaryError, isPassing, UsageError } from '../failure.ts';
import type { Invocation } from '../session/invocation.ts';
import { apiPath } from '../session/paths.ts';
import { resumingCommand } from '../session/resumption.ts';
import { stdinName } from './import-request.ts';
import { countText } from './rate.ts';

/** Errors that are told where no file is named for them. */
const toldErrors = 5;

/** Writes the errors of records to the file that is named for them, or else tells the first ones. Throws Failure. */
export async function tellErrors(
  { terminal, signal }: Invocation,
  { failed, import_id: importId }: ImportReport,
  app: App,
  file: string | undefined,
): Promise<void> {
  if (failed === 0 && file === undefined) return;
  const errors = failed === 0 ? [] : await app.importErrors(importId, { signal });
  if (file !== undefined) {
    await writeFile(file, errors.map((each) => `${jsonText(each)}\n`).join('')).catch((error: Error) => {
      throw new Failure(`The errors cannot be written: ${error.message}`, {
        nextStep: 'The same command with another --errors file writes them: nothing is imported again.',
      });
    });
    terminal.say(`${countText(errors.length, 'error')} of ${failed} are in ${file}.`);
    return;
  }
  for (const { line, id, error, code } of errors.slice(0, toldErrors)) {
    terminal.complain(`line ${line}${id === undefined ? '' : ` (${id})`}: ${error} (${code})`);
  }
  if (failed <= toldErrors) return;
  const path = apiPath('apps', app.id, 'imports', importId, 'errors');
  terminal.say(`More are at GET ${path}; --errors <file> writes the first 1,000.`);
}

/** Says what of a file is stored where an import did not come to its end, and how it goes on. */
export function sayInterrupted(
  { terminal, signal }: Invocation,
  { file, linesDone, isResumable }: { file: string; linesDone: number | undefined; isResumable: boolean },
  error: unknown,
): never {
  if (error instanceof UsageError || linesDone === undefined) throw error;
  terminal.overwrite('');
  const name = file === stdinName ? 'stdin' : file;
  const line = isGranaryError(error) ? error.details['line'] : undefined;
  if (line !== undefined) {
    terminal.complain(`It ended at line ${Number(line)} of ${name}: the records before it are stored.`);
    terminal.complain('Correct the line and import the file again, or pass over such lines by --on-error continue.');
  } else if (signal.aborted || isPassing(error)) {
    terminal.complain(`${countText(linesDone, 'line')} of ${name} are stored.`);
    terminal.complain(
      isResumable
        ? `The same command goes on behind them: ${resumingCommand()}`
        : 'It cannot go on behind them; the same file can be imported again, for documents keep their ids.',
    );
  }
  throw error;
}
