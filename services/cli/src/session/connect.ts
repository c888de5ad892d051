import type { App, GranaryOptions } from '@granary/client';
import { parseExact } from '../exact-json.ts';
import { UsageError } from '../failure.ts';
import type { Target } from '../profiles/target.ts';
import { version } from './version.ts';

export interface ConnectOptions {
  /** Is told each request with its answer, without keys. */
  debug?: ((line: string) => void) | undefined;
  /** Reads the JSON of answers: as `parseExact` if nothing else is said. */
  parse?: ((text: string) => unknown) | undefined;
  timeoutMs?: number | undefined;
  retries?: number | undefined;
}

/** The app of a target, with its key. Throws UsageError where no app is named. */
export async function connectApp(target: Target, options: ConnectOptions = {}): Promise<App> {
  if (target.app === undefined) {
    throw new UsageError('No app is named', 'Name one by --app or GRANARY_APP, or run `granary login`.');
  }
  const { appKey: key, agentKey, userKey } = target;
  return connect(target, { app: target.app, key, agentKey, userKey }, options);
}

/** The service as its operator calls it. Throws UsageError without the operator's key. */
export async function connectOperator(target: Target, options: ConnectOptions = {}): Promise<App> {
  const { operatorKey } = target;
  if (operatorKey === undefined) {
    throw new UsageError(
      "This needs the operator's key",
      'Set GRANARY_OPERATOR_KEY, or run `granary login --operator`. `npm start` stores it in .granary/operator-key.',
    );
  }
  return connect(target, { app: target.app ?? '-', headers: { 'X-Operator-Key': operatorKey } }, options);
}

/** The service as everybody may call it. */
export const connectPublic = (target: Target, options: ConnectOptions = {}): Promise<App> =>
  connect(target, { app: target.app ?? '-' }, options);

async function connect(
  { url }: Target,
  { headers, ...options }: Omit<GranaryOptions, 'url'>,
  { debug, parse = parseExact, timeoutMs, retries }: ConnectOptions,
): Promise<App> {
  const { granary } = await import('@granary/client');
  return granary({
    ...options,
    url,
    headers: { ...headers, 'User-Agent': `granary-cli/${version}` },
    numbers: parse,
    timeoutMs,
    retries,
    fetch: debug && fetchWithLog(debug),
  });
}

/** A `fetch` that tells of each request: its path, and what came of it. Headers, which have keys, are not told. */
export function fetchWithLog(debug: (line: string) => void): typeof fetch {
  return async (input, init) => {
    const startMs = performance.now();
    const { pathname, search } = new URL(input as string);
    const tell = (outcome: string) => {
      const ms = Math.round(performance.now() - startMs);
      debug(`${init?.method ?? 'GET'} ${pathname}${search} → ${outcome} in ${ms} ms`);
    };
    try {
      const response = await fetch(input, init);
      tell(`${response.status} (${response.headers.get('x-request-id') ?? 'no request id'})`);
      return response;
    } catch (error) {
      const { cause, message } = error as Error;
      tell(cause instanceof Error ? cause.message : message);
      throw error;
    }
  };
}
