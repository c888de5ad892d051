/**
 * What a call needs of an AbortSignal, which is one. Every request has its own and hardly any is ever aborted, so it is
 * usually a `Cancellation`: to make an EventTarget, listen to it and leave again takes several microseconds.
 */
export interface CancelSignal {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void, options?: { once: boolean }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** A signal and the means to give it, once. */
export class Cancellation implements CancelSignal {
  aborted = false;
  private listeners: Set<() => void> | undefined;

  abort(): void {
    if (this.aborted) return;
    this.aborted = true;
    const { listeners } = this;
    this.listeners = undefined;
    for (const listener of listeners ?? []) listener();
  }

  addEventListener(_: 'abort', listener: () => void): void {
    if (!this.aborted) (this.listeners ??= new Set()).add(listener);
  }

  removeEventListener(_: 'abort', listener: () => void): void {
    this.listeners?.delete(listener);
  }
}

/** For calls that nobody can abort. */
export const neverAborted: CancelSignal = {
  aborted: false,
  addEventListener: () => {},
  removeEventListener: () => {},
};
