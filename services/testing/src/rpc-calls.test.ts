import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { RpcCalls, rpcMethods } from './rpc-calls';

const line = (method: string, direction: string, count: number) =>
  `granary_rpc_requests_total{method="${method}",direction="${direction}",code="OK"} ${count}`;

test('the methods of all services are known by their names', () => {
  expect(rpcMethods()).toEqual(
    expect.arrayContaining([
      'granary.tasks.v1.Tasks/GetTask',
      'granary.data.v1.Data/Store',
      'granary.mux.v1.Mux/Stream',
    ]),
  );
  expect(new Set(rpcMethods()).size).toBe(rpcMethods().length);
});

test('a method counts once a process has called it at another one', async () => {
  const [sent, handled, never, elsewhere] = rpcMethods();
  const text = [line(sent!, 'client', 7), line(handled!, 'server', 7), line(never!, 'client', 0)].join('\n');
  const server = createServer((_, response) => response.end(text));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const calls = new RpcCalls();
  try {
    // Nothing answers at port 1.
    await calls.collect([`127.0.0.1:${(server.address() as AddressInfo).port}`, '127.0.0.1:1']);
  } finally {
    server.close();
  }
  const uncalled = calls.uncalled({ [elsewhere!]: 'a reason' });
  expect(uncalled).toEqual(rpcMethods().filter((method) => method !== sent && method !== elsewhere));
});
