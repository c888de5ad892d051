import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { addressKey } from './client-address';

/** Connections of one client that are examined for an idle one, the oldest first. */
const examinedMax = 256;

/** Node's own note of the answer that is due on a connection; null or absent between requests. */
type HttpSocket = Socket & { _httpMessage?: unknown };

/**
 * Bounds the connections of a server, which would otherwise exhaust the file descriptors of the process. Beyond the
 * limit the oldest idle connection of the client with the most connections is closed; if that client has no idle one,
 * `refuse` is called with the new connection.
 */
export class Connections {
  private readonly byClient = new Map<string, Set<HttpSocket>>();
  private count = 0;

  constructor(
    private readonly max: number,
    private readonly refuse: (newcomer: Socket) => void,
  ) {}

  watch(server: Server): void {
    server.on('connection', (socket: Socket) => this.open(socket));
  }

  private open(socket: Socket): void {
    const client = addressKey(socket.remoteAddress ?? '');
    if (this.count >= this.max && !this.closeIdle()) return this.refuse(socket);
    const ofClient = this.byClient.get(client) ?? new Set();
    this.byClient.set(client, ofClient.add(socket));
    this.count += 1;
    socket.once('close', () => this.forget(client, socket));
  }

  private closeIdle(): boolean {
    let largest: [string, Set<HttpSocket>] | undefined;
    for (const entry of this.byClient) if (!largest || entry[1].size > largest[1].size) largest = entry;
    let examined = 0;
    for (const socket of largest?.[1] ?? []) {
      if (!socket._httpMessage) {
        // It is forgotten at once, not at its `close`: more connections may arrive before that.
        this.forget(largest![0], socket);
        socket.destroy();
        return true;
      }
      if (++examined === examinedMax) return false;
    }
    return false;
  }

  private forget(client: string, socket: HttpSocket): void {
    const ofClient = this.byClient.get(client);
    if (!ofClient?.delete(socket)) return;
    this.count -= 1;
    if (ofClient.size === 0) this.byClient.delete(client);
  }
}
