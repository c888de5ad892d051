import path from 'node:path';
import { operatorKey } from '../backends/backends';
import type { Cluster } from '../cluster/cluster';
import type { TrafficResult } from './request-counts';

const trafficFile = path.join(__dirname, 'traffic.js');

/** An app, with a key of it. */
export interface App {
  id: string;
  key: string;
}

/** The clients to start: writers, and one of each other kind. */
export interface ClientOptions {
  writers: number;
  /** The pause of writers between their requests, 0 by default. */
  pauseMs?: number;
  /** The other kinds that are left out. */
  without?: readonly string[] | undefined;
}

export interface Clients {
  /** Stops the clients, and returns their result. */
  end(): Promise<TrafficResult>;
  /** Stops the clients at once, without a result. */
  kill(): void;
}

/** Starts clients of the gateway at `url`, see traffic.ts. */
export function startClients(
  cluster: Cluster,
  { url, app, writers, pauseMs = 0, without = [] }: ClientOptions & { url: string; app: App },
): Clients {
  const numbers = [writers, pauseMs].map(String);
  const command = [process.execPath, trafficFile, url, app.key, app.id, ...numbers, operatorKey, ...without];
  const child = cluster.start('clients', command, { isPiped: true });
  let output = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (output += text));
  const ended = new Promise((resolve) => child.once('close', resolve));
  return {
    end: async () => {
      child.kill('SIGTERM');
      await ended;
      if (output === '') throw new Error(`the clients ended without a result: ${child.exitCode ?? child.signalCode}`);
      return JSON.parse(output) as TrafficResult;
    },
    kill: () => void child.kill('SIGKILL'),
  };
}
