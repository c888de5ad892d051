import type { Command } from 'commander';
import { UsageError } from '../failure.ts';
import { jsonText } from '../exact-json.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { typesListener } from './types.ts';

interface DevOptions {
  port?: string;
  out?: string;
  types: boolean;
}

export function addDevCommand(program: Command): void {
  program
    .command('dev')
    .description('keep the types current, and tell the requests of a program that calls the service through this')
    .option('--port <n>', 'serve on this port; without it on a free one')
    .option('--out <file>', 'write the types to this file (granary.gen.ts)')
    .option('--no-types', 'write no types')
    .action(action<DevOptions>(dev));
}

async function dev(call: Invocation<DevOptions>): Promise<void> {
  const { terminal, options, signal } = call;
  const port = portOf(options.port);
  const { url } = await call.target();
  const app = options.types ? await call.app() : undefined;
  const { RequestProxy } = await import('../proxy/request-proxy.ts');
  const { requestLine, requestObject } = await import('../proxy/request-line.ts');
  const proxy = new RequestProxy(url, (request) => {
    const styled = terminal.styled.bind(terminal);
    void terminal.print(options.json ? jsonText(requestObject(request)) : requestLine(request, styled));
  });
  const address = await proxy.start(port);
  try {
    terminal.say(`${address} leads to ${url}: a program that has it as its URL has its requests told here.`);
    if (!app) return await untilAborted(signal);
    const { defaultFile } = await import('../types/types-file.ts');
    const { watchTypes } = await import('../types/watch.ts');
    const file = options.out ?? defaultFile;
    await watchTypes(app, file, typesListener(call, file), signal);
  } finally {
    await proxy.stop();
  }
}

function portOf(text = '0'): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : NaN;
  if (port <= 65_535) return port;
  throw new UsageError(`"${text}" is not a port`, 'A port is a number up to 65535; 0 takes a free one.');
}

/** Rejects with the reason of the signal. */
const untilAborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    const onAbort = () => reject(signal.reason as Error);
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
  });
