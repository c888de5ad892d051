import { Agent, request } from 'node:http';
import type { VictimReport, VictimTask } from './victim';

// A process of its own, so that what its requests take is not what the attacker's event loop takes.

const requestTimeoutMs = 10_000;
/** Each of the clients begins a request this long after the one before, or as soon as that has ended. */
const paceMs = 50;
const clients = 4;

const agent = new Agent({ keepAlive: true, maxSockets: clients });

function send({ url, key }: VictimTask, method: string, path: string, body?: object): Promise<number> {
  const text = body === undefined ? undefined : JSON.stringify(body);
  return new Promise((resolve) => {
    const outgoing = request(url + path, { agent, method, headers: { 'x-app-key': key } }, (response) => {
      response.resume().once('close', () => resolve(response.complete ? response.statusCode! : 0));
    });
    outgoing.setTimeout(requestTimeoutMs, () => outgoing.destroy()).once('error', () => resolve(0));
    if (text !== undefined) outgoing.setHeader('content-type', 'application/json');
    outgoing.end(text);
  });
}

/** What small apps do all day: store one document, find it by its id, show it in public. */
function nextRequest(task: VictimTask, client: number, n: number): Promise<number> {
  const id = `v-${client}-${Math.floor(n / 3)}`;
  const root = `${task.appId}::notes`;
  switch (n % 3) {
    case 0:
      return send(task, 'POST', '/store', { root, data: [{ id, n }] });
    case 1:
      return send(task, 'POST', '/list', { root, find: { id } });
    default:
      return send(task, 'GET', `/api/apps/${task.appId}/collections/notes/data?id=${id}`);
  }
}

async function run(task: VictimTask): Promise<VictimReport> {
  const report: VictimReport = { statuses: [], latenciesMs: [] };
  const untilMs = performance.now() + task.durationMs;
  const loops = Array.from({ length: clients }, async (_, client) => {
    for (let n = 0; performance.now() < untilMs; n++) {
      const beganMs = performance.now();
      report.statuses.push(await nextRequest(task, client, n));
      const tookMs = performance.now() - beganMs;
      report.latenciesMs.push(tookMs);
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, paceMs - tookMs)));
    }
  });
  await Promise.all(loops);
  return report;
}

process.on('message', (task: VictimTask) => {
  void run(task).then((report) => process.send!(report));
});
