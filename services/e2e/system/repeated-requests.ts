import { eventually } from '@granary/testing/eventually';
import { send, type Granary, type TestApp } from '../support/granary';

const retryAfterMs = 10;

/** Senders that repeat a request until they are stopped, also while the service is down. */
export class RepeatedRequests {
  /** Requests that succeeded. */
  done = 0;
  private isStopped = false;
  private readonly loops: Array<Promise<void>>;

  /** `succeeds` sends one request. */
  constructor(senders: number, succeeds: () => Promise<boolean>) {
    this.loops = Array.from({ length: senders }, async () => {
      while (!this.isStopped) {
        if (await succeeds().catch(() => false)) this.done += 1;
        else await new Promise((resolve) => setTimeout(resolve, retryAfterMs));
      }
    });
  }

  /** Resolves when so many more have succeeded. */
  async more(count: number, timeoutMs?: number): Promise<void> {
    const goal = this.done + count;
    await eventually(() => this.done >= goal, timeoutMs);
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    await Promise.all(this.loops);
  }
}

/** The wallet of an app, in utia. */
export async function walletOf({ url }: Pick<Granary, 'url'>, { appId, key }: Pick<TestApp, 'appId' | 'key'>) {
  const path = `/api/apps/${appId}/wallet`;
  return (await send<{ balance: number; total_spent: number; total_earned: number }>(url, 'GET', path, { key })).body;
}
