/** Prints a line for the user of the command. */
export type Say = (line: string) => void;

const everyMs = 2_000;

export interface Progress {
  add(count: number): void;
}

/** Prints progress towards a total, at most every two seconds. */
export function startProgress(say: Say, line: (done: number) => string): Progress {
  let done = 0;
  let printedMs = Date.now();
  return {
    add: (count) => {
      done += count;
      if (Date.now() - printedMs < everyMs) return;
      printedMs = Date.now();
      say(line(done));
    },
  };
}

/** `12.3 MiB`. */
export function inMebibytes(bytes: number): string {
  const mebibytes = bytes / 1024 ** 2;
  return `${mebibytes >= 100 ? Math.round(mebibytes) : mebibytes.toFixed(1)} MiB`;
}
