import { fork, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import type { BusProcess } from './bus-process';

/** A process that is made again whenever it ends. */
export class Copy {
  private child: ChildProcess | undefined;
  private ready = false;
  private ending = false;

  constructor(private readonly what: BusProcess) {
    this.begin();
  }

  private begin(): void {
    const fromSource = join(__dirname, '..', '..', '..', 'local', 'test', 'from-source.js');
    this.child = fork(join(__dirname, 'bus-process.ts'), [JSON.stringify(this.what)], {
      execArgv: ['--conditions', 'source', '--require', fromSource],
    });
    this.child.once('message', () => {
      this.ready = true;
    });
    this.child.once('exit', () => {
      this.ready = false;
      if (!this.ending) this.begin();
    });
  }

  /** False while it is starting. */
  isReady(): boolean {
    return this.ready;
  }

  kill(): void {
    this.ready = false;
    this.child!.kill('SIGKILL');
  }

  end(): void {
    this.ending = true;
    this.kill();
  }
}
