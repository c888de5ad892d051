import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { operatorKey } from './backends.mjs';

const trafficFile = path.join(path.dirname(fileURLToPath(import.meta.url)), 'traffic.mjs');

/**
 * Starts clients of a gateway, see traffic.mjs: `writers`, which pause between their requests, by default not at all,
 * and one of each other kind but those that are `without`. `end` stops them and returns
 * `{requests, requestsAt, kinds, written, uploaded, failed, failures}`; `kill` stops them at once.
 */
export function startClients(cluster, { url, app, writers, pauseMs = 0, without = [] }) {
  const numbers = [writers, pauseMs].map(String);
  const command = [process.execPath, trafficFile, url, app.key, app.id, ...numbers, operatorKey, ...without];
  const child = cluster.start('clients', command, { isPiped: true });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text) => (output += text));
  const ended = new Promise((resolve) => child.once('close', resolve));
  return {
    end: async () => {
      child.kill('SIGTERM');
      await ended;
      if (output === '') throw new Error(`the clients ended without a result: ${child.exitCode ?? child.signalCode}`);
      return JSON.parse(output);
    },
    kill: () => child.kill('SIGKILL'),
  };
}
