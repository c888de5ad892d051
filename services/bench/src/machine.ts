import { execFileSync } from 'node:child_process';
import { open } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { median } from './report';

const writes = 50;

/** Properties of a machine that affect the figures; `commit` is that of this repository. */
export interface Machine {
  cpu: string;
  memoryGib: number;
  node: string;
  platform: string;
  syncUs: number;
  commit: string;
}

/** Describes this machine. A sync of zero duration means that the folder is not on a disk. */
export async function describeMachine(directory: string): Promise<Machine> {
  return {
    cpu: `${os.availableParallelism()} x ${os.cpus()[0]?.model ?? 'unknown'}`,
    memoryGib: Math.round(os.totalmem() / 1024 ** 3),
    node: process.version,
    platform: `${os.platform()} ${os.release()}`,
    syncUs: Math.round(await measureSync(path.join(directory, 'sync'))),
    commit: commitOf(),
  };
}

export function machineLine({ cpu, memoryGib, node, platform, syncUs, commit }: Machine): string {
  return `${cpu}, ${memoryGib} GiB, ${platform}, Node ${node}, fdatasync ${syncUs} µs, commit ${commit}`;
}

async function measureSync(name: string): Promise<number> {
  const file = await open(name, 'w');
  const page = Buffer.alloc(8192, 1);
  const times: number[] = [];
  for (let i = 0; i < writes; i++) {
    const startedMs = performance.now();
    await file.write(page, 0, page.length, 0);
    await file.datasync();
    times.push((performance.now() - startedMs) * 1000);
  }
  await file.close();
  return median(times);
}

function commitOf(): string {
  try {
    return execFileSync('git', ['describe', '--always', '--dirty'], { encoding: 'utf8', stdio: 'pipe' }).trim();
  } catch {
    // A copy without Git history.
    return 'unknown';
  }
}
