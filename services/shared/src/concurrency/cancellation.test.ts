import { Cancellation, LinkedCancellation, type CancelSignal } from './cancellation';

type Signal = CancelSignal & { abort(): void };

test.each([
  ['a Cancellation', (): Signal => new Cancellation()],
  ['a LinkedCancellation', (): Signal => new LinkedCancellation(new Cancellation())],
  ['an AbortController', (): Signal => withSignal(new AbortController())],
])('%s tells those who listen, once, and nobody who has left or came too late', (_, make) => {
  const signal = make();
  const told: string[] = [];
  const stays = () => told.push('stays');
  const leaves = () => told.push('leaves');
  signal.addEventListener('abort', stays, { once: true });
  signal.addEventListener('abort', stays, { once: true });
  signal.addEventListener('abort', leaves, { once: true });
  signal.removeEventListener('abort', leaves);
  expect(signal.aborted).toBe(false);
  signal.abort();
  signal.abort();
  signal.addEventListener('abort', () => told.push('late'));
  expect(signal.aborted).toBe(true);
  expect(told).toEqual(['stays']);
});

test('a linked signal is aborted with its parent, which has a listener only while the linked one has', () => {
  const parent = new Cancellation();
  const removed: unknown[] = [];
  const listened: unknown[] = [];
  const add = parent.addEventListener.bind(parent);
  parent.addEventListener = (type, listener) => {
    listened.push(listener);
    add(type, listener);
  };
  const remove = parent.removeEventListener.bind(parent);
  parent.removeEventListener = (type, listener) => {
    removed.push(listener);
    remove(type, listener);
  };
  const signal = new LinkedCancellation(parent);
  let aborts = 0;
  const abort = () => (aborts += 1);
  signal.addEventListener('abort', abort);
  signal.removeEventListener('abort', abort);
  expect(removed).toEqual(listened);
  signal.addEventListener('abort', abort);
  parent.abort();
  expect([signal.aborted, aborts]).toEqual([true, 1]);
  expect(new LinkedCancellation(parent).aborted).toBe(true);
  const alone = new LinkedCancellation(new Cancellation());
  alone.abort();
  expect(alone.aborted).toBe(true);
});

test('a linked signal that is aborted by itself leaves no listener with its parent', () => {
  const parent = new Cancellation();
  const listening = new Set<() => void>();
  parent.addEventListener = (_, listener) => void listening.add(listener);
  parent.removeEventListener = (_, listener) => void listening.delete(listener);
  const signal = new LinkedCancellation(parent);
  signal.addEventListener('abort', () => {});
  expect(listening.size).toBe(1);
  signal.abort();
  expect(listening.size).toBe(0);
});

function withSignal(controller: AbortController) {
  const { signal } = controller;
  return {
    get aborted() {
      return signal.aborted;
    },
    abort: () => controller.abort(),
    addEventListener: signal.addEventListener.bind(signal),
    removeEventListener: signal.removeEventListener.bind(signal),
  };
}
