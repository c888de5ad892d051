import type { App, Task } from '@granary/client';
import { Interrupted } from '../failure.ts';
import type { Invocation } from '../session/invocation.ts';
import { ProgressBar } from '../terminal/progress.ts';

/** Waits for a task, with a bar of its progress, and says after Ctrl-C how to wait on. */
export async function finishedTask({ terminal, signal }: Invocation, app: App, ticket: string): Promise<Task> {
  try {
    return await withBar(new ProgressBar(terminal, 'Waiting'), app, ticket, signal);
  } catch (error) {
    if (error instanceof Interrupted) terminal.say(`The task goes on: \`granary tasks wait ${ticket}\` waits for it.`);
    throw error;
  }
}

async function withBar(bar: ProgressBar, app: App, ticket: string, signal: AbortSignal): Promise<Task> {
  try {
    return await app.finished(ticket, {
      signal,
      onProgress: ({ progress, operation_type: operation }) => bar.show(progress, 1, operation),
    });
  } finally {
    bar.end();
  }
}
