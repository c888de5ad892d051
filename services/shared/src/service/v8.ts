import { setFlagsFromString } from 'node:v8';

/**
 * The flags of our processes: V8 then has one worker thread for each processor but one, which is left to the event
 * loop. On two processors its default of four threads compete with each other and with the event loop.
 */
export const nodeFlags: readonly string[] = ['--v8-pool-size=0'];

/** The flag for how much the heap may grow after a collection; V8 has it in Node 20, 22 and 24. */
export const heapFlag = '--heap-growing-percent=300';

/**
 * Lets V8's heap grow to four times its live size before the next full collection. By default V8 chooses a smaller
 * factor where little of the garbage is objects, as in a process that forwards bytes: buffers count as part of the heap
 * and then cause about ten mark phases per second, 10 to 30 ms each on busy processors. The cost is memory: up to three
 * times the live size (some 30 MiB and the bodies under way) of unused buffers.
 */
export function collectSeldom(): void {
  setFlagsFromString(heapFlag);
}
