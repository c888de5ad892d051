import { fork, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { programArguments } from '@granary/testing/programs';
import { builtServices } from '@granary/testing/stack';
import type { BusProcess } from './bus-process';

/** A process that is made again whenever it ends. */
export class Copy {
  private child: ChildProcess | undefined;
  private ready = false;
  private ending = false;

  private constructor(private readonly what: BusProcess) {
    this.begin();
  }

  static async start(what: BusProcess): Promise<Copy> {
    await builtServices();
    return new Copy(what);
  }

  private begin(): void {
    this.child = fork(join(__dirname, 'bus-process.ts'), [JSON.stringify(this.what)], { execArgv: programArguments });
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
