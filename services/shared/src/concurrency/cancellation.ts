/**
 * The part of an AbortSignal that a call needs; every AbortSignal has it. Each request has a signal of its own and
 * hardly any is ever aborted, so it is usually a `Cancellation`: making an EventTarget, listening to it and leaving it
 * again takes several microseconds.
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

/**
 * A signal that is aborted by itself or with its parent. It listens to the parent only while it has listeners: most
 * calls end without any.
 */
export class LinkedCancellation implements CancelSignal {
  private isAborted = false;
  private abortWithParent: (() => void) | undefined;
  private listeners: Set<() => void> | undefined;

  constructor(private readonly parent: CancelSignal) {}

  get aborted(): boolean {
    return this.isAborted || this.parent.aborted;
  }

  abort(): void {
    this.isAborted = true;
    const { listeners } = this;
    if (!listeners) return;
    this.listeners = undefined;
    this.parent.removeEventListener('abort', this.abortWithParent!);
    for (const listener of listeners) listener();
  }

  addEventListener(_: 'abort', listener: () => void): void {
    if (this.aborted) return;
    if (!this.listeners) {
      this.listeners = new Set();
      this.abortWithParent = () => this.abort();
      this.parent.addEventListener('abort', this.abortWithParent, { once: true });
    }
    this.listeners.add(listener);
  }

  removeEventListener(_: 'abort', listener: () => void): void {
    if (!this.listeners?.delete(listener) || this.listeners.size > 0) return;
    this.listeners = undefined;
    this.parent.removeEventListener('abort', this.abortWithParent!);
  }
}

/** The signal of calls that nobody can abort. */
export const neverAborted: CancelSignal = {
  aborted: false,
  addEventListener: () => {},
  removeEventListener: () => {},
};
