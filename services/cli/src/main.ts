#!/usr/bin/env node
import { CommanderError, type Command } from 'commander';
import { exitCodeOf, exitCodes, Interrupted, isGranaryError, nextStepOf } from './failure.ts';
import { buildProgram } from './program.ts';
import { interruption, type GlobalOptions } from './session/invocation.ts';
import { Terminal } from './terminal/terminal.ts';

/** A command that is waiting for something that knows no signal is ended after this time. */
const endsAfterMs = 3_000;

// The reader of a pipe has left, as `head` does.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(exitCodes.pipeClosed);
  throw error;
});
process.stderr.on('error', () => {});

process.on('SIGINT', () => {
  if (interruption.signal.aborted) process.exit(exitCodes.interrupted);
  interruption.abort(new Interrupted());
  setTimeout(() => process.exit(exitCodes.interrupted), endsAfterMs).unref();
});

/** Says what went wrong, and what to do about it. */
function report(program: Command, error: unknown): void {
  const { json, color, debug } = program.opts<GlobalOptions>();
  const terminal = new Terminal(process, { color });
  const problem = error instanceof Error ? error : new Error(String(error));
  const nextStep = nextStepOf(error);
  if (json) {
    const { code, status, details, requestId } = isGranaryError(error) ? error : ({} as Record<string, undefined>);
    const line = { error: problem.message, code, status, details, request_id: requestId, next_step: nextStep };
    terminal.complain(JSON.stringify(line));
    return;
  }
  const code = isGranaryError(error) ? ` (${error.code})` : '';
  terminal.complain(`${terminal.styledMessage('red', 'error:')} ${problem.message}${code}`);
  if (nextStep !== undefined) terminal.complain(nextStep);
  if (!debug) return;
  terminal.complain(terminal.styledMessage('dim', problem.stack ?? ''));
}

async function main(): Promise<void> {
  const program = buildProgram();
  try {
    await program.parseAsync();
  } catch (error) {
    if (error instanceof CommanderError) {
      // It has said it by itself.
      process.exitCode = error.exitCode === 0 ? 0 : exitCodes.usage;
      return;
    }
    // However a part of Node or of the client puts it, Ctrl-C has ended the command.
    const isInterrupted = interruption.signal.aborted;
    if (!isInterrupted) report(program, error);
    process.exitCode = isInterrupted ? exitCodes.interrupted : exitCodeOf(error);
  }
}

await main();
