import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** Stands before a service, and cuts connections off: each behind so many bytes, or all of them at once. */
export class CuttingProxy {
  cuts = 0;
  private readonly sockets = new Set<Socket>();
  private readonly server: Server;

  /** `bytesOf` says behind how many bytes of a request, and of its answer, a connection is cut. */
  private constructor(target: URL, bytesOf: () => { sent: number; received: number }) {
    this.server = createServer((client) => {
      const upstream = connect(Number(target.port), target.hostname);
      const { sent, received } = bytesOf();
      this.pass(client, upstream, sent);
      this.pass(upstream, client, received);
    });
  }

  static async start(url: string, bytesOf: () => { sent: number; received: number }): Promise<CuttingProxy> {
    const proxy = new CuttingProxy(new URL(url), bytesOf);
    await new Promise<void>((resolve) => proxy.server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  cutAll(): void {
    for (const socket of this.sockets) socket.destroy();
    this.cuts += 1;
  }

  stop(): void {
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
  }

  private pass(from: Socket, to: Socket, most: number): void {
    let bytes = 0;
    this.sockets.add(from);
    from.on('error', () => {});
    from.on('close', () => {
      this.sockets.delete(from);
      to.destroy();
    });
    from.on('data', (chunk) => {
      bytes += chunk.length;
      if (bytes <= most) return void to.write(chunk);
      // What came before the cut is there, and nothing that comes while it is passed on.
      from.removeAllListeners('data');
      to.write(chunk.subarray(0, most - (bytes - chunk.length)), () => {
        this.cuts += 1;
        from.destroy();
        to.destroy();
      });
    });
  }
}
