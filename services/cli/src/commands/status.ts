import type { Command } from 'commander';
import { parseExact } from '../exact-json.ts';
import { exitCodes, Failure, isGranaryError } from '../failure.ts';
import type { Target } from '../profiles/target.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { printList, printObject } from '../terminal/table.ts';
import { apiPath } from '../session/paths.ts';

interface Check {
  status: string;
  latency_ms: number;
  version?: string | null;
  message?: string;
}

interface Health {
  status: string;
  version: string;
  checks: Record<string, Check & Record<string, unknown>>;
}

interface Part extends Partial<Check> {
  part: string;
  status: string;
}

const timeoutMs = 15_000;

export function addStatusCommand(program: Command): void {
  program
    .command('status')
    .description('show whether the service is well, and whether it knows the key of the app')
    .action(action(status));
}

async function status(call: Invocation): Promise<void> {
  const { terminal } = call;
  const target = await call.target();
  const health = await healthOf(call, target.url);
  const app = await appOf(call, target);
  if (terminal.options.json)
    await printObject(terminal, { url: target.url, ...health, ...(app && { app: app.shown }) });
  else {
    const parts = [...partsOf(health), ...(app ? [{ part: `app ${app.shown.app_id}`, ...app.shown }] : [])];
    await printList(terminal, parts, {
      part: ({ part }) => part,
      status: (part) => part.status,
      ms: (part) => part.latency_ms,
      version: ({ version }) => version,
      message: ({ message }) => message,
    });
  }
  const sentence = `Granary ${health.version} at ${target.url} is ${health.status}`;
  if (health.status !== 'healthy') throw new Failure(sentence);
  if (app?.error !== undefined) throw app.error;
  terminal.say(`${sentence}.`);
}

/** The health of the service; that of one that is down comes with 503. Throws Failure where there is none. */
async function healthOf(call: Invocation, url: string): Promise<Health> {
  const nextStep = '`npm start` in a checkout of Granary runs a service; --url or `granary login` names another one.';
  // A signal of AbortSignal.timeout that nothing else refers to is collected by Node 20 before it is aborted.
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(new Error(`nothing came in ${timeoutMs / 1_000} s`)), timeoutMs);
  let body: string;
  try {
    const signal = AbortSignal.any([call.signal, late.signal]);
    body = await (await call.fetch(`${url}/health`, { signal })).text();
  } catch (error) {
    call.signal.throwIfAborted();
    const { cause, message } = error as Error;
    const reason = cause instanceof Error && cause.message !== '' ? cause.message : message;
    throw new Failure(`No service answers at ${url}: ${reason}`, { exitCode: exitCodes.unreachable, nextStep });
  } finally {
    clearTimeout(timer);
  }
  const health = parsedHealth(body);
  if (health) return health;
  throw new Failure(`What answers at ${url} is not Granary`, { exitCode: exitCodes.unreachable, nextStep });
}

function parsedHealth(text: string): Health | undefined {
  try {
    const health = parseExact(text) as Partial<Health> | null;
    return typeof health?.status === 'string' && typeof health.checks === 'object' ? (health as Health) : undefined;
  } catch {
    return undefined;
  }
}

/** The services, each followed by what is not well in it or has something to say. */
function* partsOf({ checks }: Health): Generator<Part> {
  for (const [service, check] of Object.entries(checks)) {
    yield { part: service, status: check.status, latency_ms: check.latency_ms, version: check.version ?? null };
    for (const [name, value] of Object.entries(check)) {
      if (typeof value !== 'object' || value === null) continue;
      const { status: state, latency_ms: ms, message } = value as Check;
      if (state === 'healthy' && message === undefined) continue;
      yield { part: `${service}: ${name}`, status: state, latency_ms: ms, ...(message !== undefined && { message }) };
    }
  }
}

interface AppState {
  shown: Omit<Part, 'part'> & { app_id: string };
  error?: Error;
}

/** Whether the service knows the key of the app, where there are both. */
async function appOf(call: Invocation, { app: id, appKey }: Target): Promise<AppState | undefined> {
  if (id === undefined || appKey === undefined) return undefined;
  try {
    const app = await call.app({ timeoutMs });
    const options = { signal: call.signal };
    const { version } = await app.request<{ version: string }>('GET', apiPath('apps', id, 'health'), options);
    return { shown: { app_id: id, status: 'healthy', version } };
  } catch (error) {
    if (!isGranaryError(error)) throw error;
    // A key that may only write is a key, too.
    if (error.code === 'FORBIDDEN') return { shown: { app_id: id, status: 'healthy' } };
    return { shown: { app_id: id, status: 'unusable', message: error.message }, error };
  }
}
