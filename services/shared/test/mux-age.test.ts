// eslint-disable-next-line no-restricted-imports -- our servers keep connections for minutes, a proxy may not
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { messageBytesMax } from '@granary/shared/grpc/message-size';
import { muxDefinition } from '@granary/shared/mux/protocol';

import { MuxServer } from '@granary/shared/mux/server';
import type { MuxMethod } from '@granary/shared/mux/session';
import { dataDefinition, log, open, stops, multiplexed, tcpProxy, wishes } from './support/mux-fixture';

const connectionAgeMs = 300;
/** What calls under way have left after that; then the connection is cut, whatever is on it. */
const graceMs = 500;

afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

/** The service behind a server that closes connections of a certain age, so that a balancer can spread them anew. */
async function serveForShort({ handlers }: { handlers: object }): Promise<string> {
  const methods = new Map<string, MuxMethod>();
  for (const [name, method] of Object.entries(dataDefinition)) {
    const handler = (handlers as Record<string, MuxMethod['handler']>)[name[0]!.toLowerCase() + name.slice(1)]!;
    methods.set(method.path, { handler, deserialize: method.requestDeserialize, serialize: method.responseSerialize });
  }
  const server = new Server({
    'grpc.max_connection_age_ms': connectionAgeMs,
    'grpc.max_connection_age_grace_ms': graceMs,
  });
  server.addService(muxDefinition, new MuxServer(methods, messageBytesMax, log).handlers);
  stops.push(() => server.forceShutdown());
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
  return `127.0.0.1:${port}`;
}

test('every call is answered, however many connections the server closes under the streams for their age', async () => {
  const service = wishes();
  const proxy = await tcpProxy(await serveForShort(service.implementation));
  // A stream that is opened in the moment of the GOAWAY is refused with what is on it, so calls may be repeated, as
  // those of the gateway may.
  const { ask } = open(proxy.address, { repeatable: multiplexed, mux: { renewAfterMs: connectionAgeMs / 2 } });
  let answered = 0;
  const caller = async (at: number) => {
    while (answered < 5_000 || proxy.connections() < 10) {
      const bytes = at % 5 === 0 ? 200_000 : 50;
      expect((await ask({ turns: at % 20, bytes })).json).toHaveLength(bytes);
      answered++;
    }
  };
  await Promise.all(Array.from({ length: 50 }, (_, at) => caller(at)));
});
