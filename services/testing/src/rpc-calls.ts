import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { limitMs } from './speed';

const protos = path.join(__dirname, '../../../protos');

/** The methods of all services in `protos/`, as `package.Service/Method`. */
export function rpcMethods(): string[] {
  return readdirSync(protos, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.proto'))
    .flatMap((file) => {
      const text = readFileSync(path.join(protos, file), 'utf8');
      const name = /^package (\S+);$/m.exec(text)![1]!;
      return [...text.matchAll(/^service (\w+) \{\n([^]*?)^\}/gm)].flatMap(([, service, body]) =>
        [...body!.matchAll(/^ *rpc (\w+)/gm)].map(([, method]) => `${name}.${service}/${method}`),
      );
    })
    .sort();
}

const calls = /^granary_rpc_requests_total\{method="([^"]+)",direction="client",.*\} [1-9]/gm;

/** The methods that a process has called at another one, by the text of its metrics. */
export function calledIn(metrics: string): string[] {
  return [...metrics.matchAll(calls)].map(([, method]) => method!);
}

/** Counts which methods the signed clients of the stacks of a run have called. */
export class RpcCalls {
  private readonly called = new Set<string>();

  /** Reads what the processes with these addresses of metrics have called. One that has ended has told nothing. */
  async collect(metricsAddresses: string[]): Promise<void> {
    await Promise.all(
      metricsAddresses.map(async (address) => {
        const signal = AbortSignal.timeout(limitMs(5_000));
        const text = await fetch(`http://${address}/metrics`, { signal }).then(
          (response) => response.text(),
          () => '',
        );
        for (const method of calledIn(text)) this.called.add(method);
      }),
    );
  }

  /** The methods that nobody has called, without the members of `others`. */
  uncalled(others: object): string[] {
    return rpcMethods().filter((method) => !this.called.has(method) && !(method in others));
  }
}
