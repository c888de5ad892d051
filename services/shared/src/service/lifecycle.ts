import { setTimeout as delay } from 'node:timers/promises';
import { collectSeldom } from './v8';
import { isLogDrained } from '../log-output';
import type { Logger } from '../logger';
import { Cancellation, type CancelSignal } from '../concurrency/cancellation';
import { explainStart, StartError } from '../start-error';
import { StartInterruptedError } from './wait-for-dependency';

/** Something that runs until it is stopped. `failed` settles (by rejecting) only if it cannot continue. */
export interface Running {
  stop(): Promise<void>;
  failed?: Promise<never>;
  /** How long clients have, in a stop, to notice it and to get their answers. */
  leavingMs?: number;
}

/** The settings of a graceful stop, see `leavingSettings`. */
export interface Leaving {
  DRAIN_DELAY_MS: number;
  DRAIN_TIMEOUT_MS: number;
}

/** How long a stop may take in addition before the process exits. */
const stopTimeoutMs = 20_000;

/** How long the process waits until the last lines of its log are read. */
const logPatienceMs = 1_000;

/** The listeners stay: Ctrl-C under npm sends two signals, and the second must not abort the stop. */
function untilSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => resolve(signal));
  });
}

/**
 * A signal for commands that aborts when the process is told to stop. A process that has not ended `graceMs` later
 * exits.
 */
export function interruptedBySignal(graceMs: number): CancelSignal {
  const interrupted = new Cancellation();
  void untilSignal().then(() => {
    interrupted.abort();
    setTimeout(() => process.exit(1), graceMs).unref();
  });
  return interrupted;
}

/**
 * The body of every `main.ts`: starts, runs until a signal or a failure, stops. The process ends once nothing is left
 * to do, and at the latest by an unreferenced timer. `start` gets a signal that aborts when the process is to end; with
 * `interruptedMs` a start that has not ended so long after that is cut off.
 */
export async function runUntilSignalled(
  log: Logger,
  start: (interrupted: CancelSignal) => Promise<Running> | Running,
  interruptedMs?: number,
): Promise<void> {
  try {
    collectSeldom();
    const signalled = untilSignal();
    const running = await startUnlessSignalled(signalled, start, interruptedMs);
    const why = await Promise.race([signalled, running.failed ?? new Promise<never>(() => {})]).catch(
      (error: unknown) => {
        process.exitCode = 1;
        // A problem that other services reveal only after the start is one that the operator can mend, as during a
        // start.
        if (error instanceof StartError) process.stderr.write(`${error.message}\n`);
        else log.fatal({ err: error }, 'failed, stopping');
        return 'failure';
      },
    );
    log.info({ why }, 'stopping');
    setTimeout(() => process.exit(1), stopTimeoutMs + (running.leavingMs ?? 0)).unref();
    await running.stop();
    log.info('stopped');
    await logTaken();
  } catch (error) {
    if (error instanceof StartInterruptedError) {
      log.info(error.message);
      return;
    }
    endWithError(log, error);
  }
}

/**
 * Ends a process whose start, or whose command, has failed: a sentence on standard error for what the operator can
 * mend, else a log line with the stack.
 */
export function endWithError(log: Logger, error: unknown): void {
  process.exitCode = 1;
  if (error instanceof StartInterruptedError) {
    log.info(error.message);
    return;
  }
  const explanation = explainStart(error);
  if (explanation === undefined) log.fatal({ err: error }, 'could not start');
  else process.stderr.write(`${explanation}\n`);
}

async function startUnlessSignalled(
  signalled: Promise<NodeJS.Signals>,
  start: (interrupted: CancelSignal) => Promise<Running> | Running,
  interruptedMs: number | undefined,
): Promise<Running> {
  const interrupted = new Cancellation();
  let isStarting = true;
  void signalled.then(() => {
    interrupted.abort();
    if (interruptedMs === undefined || !isStarting) return;
    setTimeout(() => {
      if (isStarting) process.exit();
    }, interruptedMs).unref();
  });
  try {
    return await start(interrupted);
  } finally {
    isStarting = false;
  }
}

/** Unread output would keep the process alive: after a moment it exits without it. */
async function logTaken(): Promise<void> {
  const untilMs = performance.now() + logPatienceMs;
  while (!isLogDrained() && performance.now() < untilMs) await delay(20);
  if (!isLogDrained()) setImmediate(() => process.exit());
}

/** The value of `Running.leavingMs`, from the settings. */
export const leavingMs = ({ DRAIN_DELAY_MS, DRAIN_TIMEOUT_MS }: Leaving): number => DRAIN_DELAY_MS + DRAIN_TIMEOUT_MS;

/** Stops in reverse order of starting; throws the first error after all were tried. */
export async function stopAll(stops: Array<() => Promise<void>>): Promise<void> {
  const errors: unknown[] = [];
  for (const stop of [...stops].reverse()) await stop().catch((error: unknown) => errors.push(error));
  if (errors.length > 0) throw errors[0];
}

/** Stops parts that do not depend on each other at the same time; throws the first error after all were tried. */
export async function stopTogether(parts: ReadonlyArray<Pick<Running, 'stop'>>): Promise<void> {
  const results = await Promise.allSettled(parts.map((part) => part.stop()));
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}
