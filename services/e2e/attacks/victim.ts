import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { forkTracked } from '../support/own-process';

export interface VictimTask {
  url: string;
  appId: string;
  key: string;
  durationMs: number;
}

/** One entry for each request; status 0: no answer, or one that was cut. */
export interface VictimReport {
  statuses: number[];
  latenciesMs: number[];
}

/** A small app that reads and writes at a modest pace, from a process of its own. */
export class Victim {
  private constructor(
    private readonly child: ChildProcess,
    private readonly target: Omit<VictimTask, 'durationMs'>,
  ) {}

  static async start(target: Omit<VictimTask, 'durationMs'>): Promise<Victim> {
    return new Victim(await forkTracked(join(__dirname, 'victim-process.ts')), target);
  }

  /** Resolves with what its requests got. */
  work(durationMs: number): Promise<VictimReport> {
    return new Promise((resolve, reject) => {
      const onExit = (code: number | null) => reject(new Error(`the victim ended with ${code}`));
      this.child.once('exit', onExit);
      this.child.once('message', (report) => {
        this.child.off('exit', onExit);
        resolve(report as VictimReport);
      });
      this.child.send({ ...this.target, durationMs });
    });
  }
}

/** Share of the requests that were answered as they should, 0 to 1. */
export function shareServed(statuses: readonly number[]): number {
  return statuses.filter((status) => status === 200 || status === 202).length / statuses.length;
}

export function p95({ latenciesMs }: VictimReport): number {
  const sorted = [...latenciesMs].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length * 0.95)]!;
}
