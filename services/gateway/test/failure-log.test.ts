import { Writable } from 'node:stream';
import pino from 'pino';
import { gatewayConfig } from '@granary/gateway/config';
import { startGateway } from '@granary/gateway/service';
import { readConfig } from '@granary/shared/config';
import { ServiceError } from '@granary/shared/errors';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { ServiceTarget } from '@granary/shared/grpc/client';
import { loadService } from '@granary/shared/rpc/protos';
import { startServer } from '@granary/shared/grpc/server';
import type { Implementation } from '@granary/shared/rpc/implementation';
import { healthImplementation } from '@granary/shared/service/health-rpc';

interface Line {
  level: number;
  service: string;
  requestId: string;
}

const dataDefinition = loadService<DataDefinition>('data', 'Data');
const config = readConfig(gatewayConfig, {
  PORT: '0',
  OPERATOR_KEY: 'the key of the operator',
  INTERNAL_SECRET: 'a secret that the services share with each other',
  BLOBS_HTTP_ADDRESS: '127.0.0.1:1',
});

function logInto(lines: Line[]) {
  const sink = new Writable({
    write(chunk: Buffer, _, done) {
      lines.push(JSON.parse(chunk.toString()) as Line);
      done();
    },
  });
  return (service: string) => pino({ level: 'error', base: { service } }, sink);
}

function throwing(error: Error): Implementation {
  const fail = () => Promise.reject(error);
  const handlers = new Proxy({}, { get: () => fail });
  return { definition: dataDefinition, handlers };
}

/** A service whose answers cannot be read: a failure that only its caller can see. */
function unreadable(): Implementation {
  const { GetApplication } = dataDefinition;
  const definition = { GetApplication: { ...GetApplication, responseSerialize: () => Buffer.from([0xff]) } };
  return { definition, handlers: { getApplication: () => Promise.resolve({}) } };
}

async function failedRequest(implementation: Implementation, transport: 'direct' | 'wire', lines: Line[]) {
  const logOf = logInto(lines);
  const implementations = [implementation, healthImplementation({}, 5_000) as unknown as Implementation];
  const server = await startServer('127.0.0.1:0', implementations, logOf('data'));
  const data: ServiceTarget = transport === 'wire' ? { address: server.address } : { implementations };
  const nowhere = { address: '127.0.0.1:1' };
  const targets = { data, blobs: nowhere, finance: nowhere, payments: nowhere, tasks: nowhere };
  const gateway = await startGateway(config, { log: logOf('gateway'), targets });
  try {
    return await fetch(`${gateway.url}/api/applications/films`, { headers: { 'x-request-id': 'request-of-the-test' } });
  } finally {
    await gateway.stop();
    await server.stop();
  }
}

describe.each(['direct', 'wire'] as const)('a request that is answered with 500 (%s)', (transport) => {
  const internal = new ServiceError('INTERNAL', 'INTERNAL', 'data answered without a result');
  test.each([
    ['a bug', new TypeError('x is not a function')],
    ['an error that is internal by its code', internal],
  ])('has one line in the log, with its request id: %s', async (_, error) => {
    const lines: Line[] = [];
    const answer = await failedRequest(throwing(error), transport, lines);
    expect(answer.status).toBe(500);
    expect(answer.headers.get('x-request-id')).toBe('request-of-the-test');
    expect(lines).toMatchObject([{ level: 50, requestId: 'request-of-the-test' }]);
  });
});

test('a failure that no service has seen is logged by the gateway, with its request id', async () => {
  const lines: Line[] = [];
  const answer = await failedRequest(unreadable(), 'wire', lines);
  expect(answer.status).toBe(500);
  expect(lines).toMatchObject([{ level: 50, service: 'gateway', requestId: 'request-of-the-test' }]);
});
