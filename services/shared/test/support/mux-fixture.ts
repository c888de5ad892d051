import { createServer, connect, type AddressInfo, type Socket } from 'node:net';
import { ServiceError } from '@granary/shared/errors';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import { openClient, type ClientOptions } from '@granary/shared/grpc/client';
import { loadService } from '@granary/shared/rpc/protos';
import { startServer, type GrpcServer } from '@granary/shared/grpc/server';
import type { Implementation } from '@granary/shared/rpc/implementation';
import { newCall, type Call, type Client } from '@granary/shared/rpc/types';
import { createLogger } from '@granary/shared/logger';
import { limitMs } from '@granary/testing/speed';

export const log = createLogger('stream-test', 'silent');
export const dataDefinition = loadService<DataDefinition>('data', 'Data');
export const multiplexed = ['listDocuments', 'readCollection', 'store', 'verifyKey'] as const;
export type DataClient = Client<DataDefinition>;

export const stops: Array<() => unknown> = [];

/** The wish that a request has of the service below; it travels as the body of a ListDocuments request. */
export interface Wish {
  /** Bytes of the answer. */
  bytes?: number;
  /** Answered once `release` says so, or never. */
  held?: boolean;
  /** The error to answer with. */
  refused?: boolean;
  /** A mistake of the service. */
  broken?: boolean;
  /** Turns of the event loop that it takes. */
  turns?: number;
}

export interface Held {
  appId: string;
  call: Call;
  release(): void;
}

/** A service that does as it is asked, and shows what it is doing. */
export function wishes() {
  const held = new Set<Held>();
  const seen: Array<{ appId: string; call: Call }> = [];
  let running = 0;
  const grant = async ({ appId, body }: { appId: string; body: Buffer }, call: Call) => {
    seen.push({ appId, call });
    running++;
    try {
      const wish = JSON.parse(body.toString().trim()) as Wish;
      for (let turn = 0; turn < (wish.turns ?? 0); turn++) await new Promise((resolve) => setImmediate(resolve));
      if (wish.refused)
        throw new ServiceError('FAILED_PRECONDITION', 'NOT_TODAY', 'Ask tomorrow', { details: { when: ['tomorrow'] } });
      if (wish.broken) throw new Error('secret');
      if (wish.held) {
        await new Promise<void>((resolve, reject) => {
          const one: Held = { appId, call, release: resolve };
          held.add(one);
          call.signal.addEventListener('abort', () => {
            held.delete(one);
            reject(new ServiceError('CANCELLED', 'CANCELLED', 'The caller has gone'));
          });
        });
      }
      return { json: content(wish.bytes ?? 10) };
    } finally {
      running--;
    }
  };
  const handlers = Object.fromEntries(
    Object.keys(dataDefinition).map((name) => [name[0]!.toLowerCase() + name.slice(1), grant]),
  );
  const release = (one: Held) => {
    held.delete(one);
    one.release();
  };
  return {
    held,
    seen,
    release,
    running: () => running,
    releaseAll: () => [...held].forEach(release),
    implementation: { definition: dataDefinition, handlers } as unknown as Implementation,
  };
}

/** Bytes of which every position can be told from its neighbours. */
export function content(bytes: number): Buffer {
  const made = Buffer.alloc(bytes);
  for (let at = 0; at < bytes; at++) made[at] = (at * 31 + (at >> 8)) & 0xff;
  return made;
}

export async function serve(implementation: Implementation): Promise<GrpcServer> {
  const server = await startServer('127.0.0.1:0', [implementation], log);
  stops.push(() => server.stop());
  return server;
}

export function open(address: string, options: Partial<ClientOptions> = {}) {
  const opened = openClient(dataDefinition, { address }, { log, multiplexed, ...options });
  stops.push(() => opened.close());
  const ask = (wish: Wish, call = newCall('test', limitMs(20_000)), appId = '') =>
    opened.client.listDocuments({ appId, body: Buffer.from(JSON.stringify(wish)) }, call);
  return { ...opened, counts: () => opened.muxCounts()!, ask };
}

/** A way to an address that can be led elsewhere and blocked, one connection at a time. */
export async function tcpProxy(target: string) {
  let port = Number(target.split(':')[1]);
  const pairs: Array<[Socket, Socket]> = [];
  const server = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    pairs.push([near, far]);
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      one.setNoDelay(true).pipe(other);
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const cut = () => pairs.splice(0).forEach(([near]) => near.destroy());
  stops.push(() => {
    cut();
    server.close();
  });
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    lead: (address: string) => (port = Number(address.split(':')[1])),
    /** Nothing more passes on connection `at`: the client does not read answers, or the service requests. */
    block: (at: number, what: 'answers' | 'requests' = 'answers') => {
      const [near, far] = pairs[at]!;
      if (what === 'answers') far.unpipe(near).pause();
      else near.unpipe(far).pause();
    },
    unblock: (at: number) => {
      const [near, far] = pairs[at]!;
      far.unpipe(near).pipe(near);
      near.unpipe(far).pipe(far);
    },
    connections: () => pairs.length,
    /** Ends all connections. */
    cut,
  };
}
