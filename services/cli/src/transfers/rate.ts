import { bytesText } from '../terminal/progress.ts';

/** How fast bytes go, since this was made. */
export class Rate {
  private readonly startMs = performance.now();

  /** `1.5 MiB/s` for so many bytes. */
  text(bytes: number): string {
    const seconds = Math.max(0.001, (performance.now() - this.startMs) / 1_000);
    return `${bytesText(Math.round(bytes / seconds))}/s`;
  }
}

/** A number of things, for people: `12,345 records`. */
export const countText = (count: number, thing: string): string =>
  `${count.toLocaleString('en-US')} ${thing}${count === 1 ? '' : 's'}`;
