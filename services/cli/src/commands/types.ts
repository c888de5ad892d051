import type { Command } from 'commander';
import { UsageError } from '../failure.ts';
import { action, type Invocation } from '../session/invocation.ts';
import type { AppTypesText } from '../types/types-file.ts';
import type { TypesListener } from '../types/watch.ts';

interface TypesOptions {
  out?: string;
  check?: boolean;
  watch?: boolean;
}

export function addTypesCommand(program: Command): void {
  program
    .command('types')
    .description('write the types of the app for @granary/client')
    .option('--out <file>', 'write this file, if something has changed; without it to stdout')
    .option('--check', 'fail where the file is not current (granary.gen.ts, or --out)')
    .option('--watch', 'keep the file current (granary.gen.ts, or --out)')
    .action(action<TypesOptions>(types));
}

async function types(call: Invocation<TypesOptions>): Promise<void> {
  const { check, watch, out } = call.options;
  if (check && watch) throw new UsageError('--check and --watch are two things', 'Give one of them.');
  const app = await call.app();
  const { defaultFile, readTypes, checkTypes, writeTypes } = await import('../types/types-file.ts');
  const file = out ?? defaultFile;
  if (watch) {
    const { watchTypes } = await import('../types/watch.ts');
    return watchTypes(app, file, typesListener(call, file), call.signal);
  }
  const made = await readTypes(app, call.signal);
  if (check) {
    await checkTypes(file, made.text);
    return call.terminal.say(`${file} is current.`);
  }
  if (out === undefined) {
    sayOmitted(call, made);
    return call.terminal.write(made.text);
  }
  const listener = typesListener(call, file);
  return (await writeTypes(file, made.text)) ? listener.onWritten(made) : listener.onUnchanged(made);
}

/** Says what becomes of a file with types. */
export function typesListener(call: Invocation, file: string): TypesListener {
  const { terminal } = call;
  return {
    onWritten: (made) => {
      terminal.say(`${file} is written.`);
      sayOmitted(call, made);
    },
    onUnchanged: () => terminal.say(`${file} is current.`),
    onFailed: ({ message }) => terminal.say(`The types cannot be read now, and are tried again: ${message}`),
  };
}

function sayOmitted({ terminal }: Invocation, { omitted }: AppTypesText): void {
  if (omitted === undefined) return;
  const warning = `The service left out ${omitted}, for its document of the app may have 4 MiB.`;
  terminal.complain(terminal.styledMessage('yellow', warning));
}
