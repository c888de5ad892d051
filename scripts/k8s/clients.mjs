import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { operatorKey } from './backends.mjs';

const trafficFile = path.join(path.dirname(fileURLToPath(import.meta.url)), 'traffic.mjs');

/**
 * Starts clients of a gateway, each with a connection, that pause between their requests, none by default. They stop at `end`,
 * after `requestsMin` requests at the earliest: it returns `{requests, written, failed, failures}`. `kill` stops them at once.
 */
export function startClients(cluster, { url, app, connections, requestsMin, pauseMs = 0 }) {
  const numbers = [connections, requestsMin, pauseMs].map(String);
  const command = [process.execPath, trafficFile, url, app.key, app.id, ...numbers, operatorKey];
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
