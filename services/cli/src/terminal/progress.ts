import type { Terminal } from './terminal.ts';

const shownEveryMs = 100;
const barWidth = 24;

/** How far something is, in a line on the terminal that is written over; where that is no terminal it says nothing. */
export class ProgressBar {
  private shownAtMs = -Infinity;

  constructor(
    private readonly terminal: Terminal,
    private readonly label: string,
  ) {}

  /** `done` of `total` in any unit; a total of undefined is not known. `text` stands behind the bar. */
  show(done: number, total: number | undefined, text: string): void {
    const now = performance.now();
    if (now - this.shownAtMs < shownEveryMs) return;
    this.shownAtMs = now;
    const share = total ? Math.min(1, done / total) : undefined;
    this.terminal.overwrite(`${this.label} ${share === undefined ? '' : barText(share)}${text}`);
  }

  /** Removes the line. */
  end(): void {
    this.terminal.overwrite('');
  }
}

function barText(share: number): string {
  const full = Math.round(share * barWidth);
  return `[${'#'.repeat(full)}${'.'.repeat(barWidth - full)}] ${String(Math.floor(share * 100)).padStart(3)} % `;
}

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** `12.3 MiB` for a number of bytes. */
export function bytesText(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const value = bytes / 1024 ** power;
  return `${power === 0 ? value : value.toFixed(1)} ${units[power]}`;
}
