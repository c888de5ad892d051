/** Returns what `work` does, or throws the reason of `signal` once that is aborted. */
export async function withinLimit(signal, work) {
  let abort;
  const aborted = new Promise((_, reject) => {
    abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort);
  });
  try {
    signal.throwIfAborted();
    return await Promise.race([aborted, work()]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
