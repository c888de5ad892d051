import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { endAllProcesses, OwnGranary } from '../support/own-process';
import { postmasterPid } from './acknowledged-writes';

/** A Granary in a process of its own with an embedded Postgres, either of which is killed and comes back. */
export class CrashingGranary {
  private constructor(
    private readonly dataDir: string,
    private granary: OwnGranary,
  ) {}

  static async start(name: string): Promise<CrashingGranary> {
    const dataDir = await mkdtemp(join(tmpdir(), `granary-${name}-`));
    return new CrashingGranary(dataDir, await OwnGranary.start(dataDir));
  }

  /** All processes have the same. */
  get url(): string {
    return this.granary.url;
  }

  get app(): OwnGranary['app'] {
    return this.granary.app;
  }

  /** Kills the process, and starts another one on its data. */
  async killNode(): Promise<void> {
    const { port } = new URL(this.url);
    await this.granary.end('SIGKILL');
    this.granary = await OwnGranary.start(this.dataDir, { PORT: port });
  }

  /** Kills Postgres, which the process starts again. */
  async killPostgres(): Promise<void> {
    process.kill(await postmasterPid(this.dataDir), 'SIGKILL');
  }

  async end(): Promise<void> {
    await this.granary.end('SIGTERM');
    await endAllProcesses();
    await rm(this.dataDir, { recursive: true, force: true });
  }
}
