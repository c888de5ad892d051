import { setTimeout as delay } from 'node:timers/promises';
import { limitMs } from './speed';

const pollEveryMs = 20;

/** How to wait for something. */
export interface Wait {
  /** The name of what is waited for, in the error; by default the source of the function that looks. */
  title?: string;
  /** The pause between two looks, 20 ms by default. */
  everyMs?: number;
}

/**
 * Polls until there is a result other than undefined and false. Throws after `timeoutMs`, which scales with the
 * slowness of the machine.
 */
export async function eventually<T>(
  look: () => Promise<T | undefined | false> | T | undefined | false,
  timeoutMs = 60_000,
  { title = look.toString(), everyMs = pollEveryMs }: Wait = {},
): Promise<T> {
  const untilMs = performance.now() + limitMs(timeoutMs);
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > untilMs) throw new Error(`it did not happen within ${limitMs(timeoutMs)} ms: ${title}`);
    await delay(everyMs);
  }
}

/**
 * Polls until `holds` accepts what was found, an error that was thrown included; the last find is named when it never
 * does.
 */
export async function eventuallyHolds<T>(look: () => Promise<T>, holds: (found: T) => boolean): Promise<T> {
  let last: T | undefined;
  try {
    return await eventually(async () => {
      last = await look().catch((error: unknown) => error as T);
      return holds(last) ? { found: last } : undefined;
    }).then(({ found }) => found);
  } catch (error) {
    throw new Error(`${(error as Error).message}; last: ${JSON.stringify(last) ?? String(last)}`, { cause: error });
  }
}

/** Polls until `look` resolves, and with what; its last error is thrown when it never does. */
export async function eventuallyResolves<T>(look: () => Promise<T>): Promise<T> {
  let last: unknown;
  const attempt = async () => {
    try {
      return { found: await look() };
    } catch (error) {
      last = error;
      return undefined;
    }
  };
  return eventually(attempt).then(
    ({ found }) => found,
    () => {
      throw last;
    },
  );
}
