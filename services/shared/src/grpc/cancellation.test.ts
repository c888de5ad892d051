import { Cancellation } from './cancellation';

test.each([
  ['a Cancellation', () => new Cancellation()],
  ['an AbortController', () => withSignal(new AbortController())],
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
