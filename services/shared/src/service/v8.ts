import { setFlagsFromString } from 'node:v8';

/**
 * With what a process of ours is started: V8 then has as many threads of its own as there are processors beside that of
 * the event loop. The four that it has otherwise are in each other's way, and in the event loop's, on two.
 */
export const nodeFlags: readonly string[] = ['--v8-pool-size=0'];

/** The heap may grow by so much of what was left of it: V8's own flag, the same in Node 20, 22 and 24. */
export const heapFlag = '--heap-growing-percent=300';

/**
 * Lets V8's heap grow to four times what was left of it before all garbage is collected again. By itself V8 chooses a
 * smaller factor where little of the garbage is objects, as in a process through which bytes pass: its buffers, which
 * count as part of the heap, then have it mark everything that lives some ten times a second, 10 to 30 ms each beside
 * busy processors. What it costs is memory: up to three times what lives, which is some 30 MiB and the bodies under
 * way, of buffers that have been used.
 */
export function collectSeldom(): void {
  setFlagsFromString(heapFlag);
}
