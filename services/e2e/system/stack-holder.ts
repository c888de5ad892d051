import { startProgram } from '@granary/stack/programs/programs';
import { beginRun } from '@granary/stack/programs/runs';

/** A Node to be killed: it begins a run with a program in it and says the program's process id. */
async function hold(): Promise<void> {
  const run = await beginRun();
  const program = await startProgram(run, 'sleep', 'sleep', ['600'], { cwd: '/', env: process.env });
  process.send!(program.pid);
}

void hold();
