interface Sent {
  body?: object;
  headers?: Record<string, string>;
  /** The statuses that are expected; 200 if none are given. */
  statuses?: number[];
}

/**
 * Sends JSON, or the bytes of a Buffer, and returns parsed JSON, of the type that the caller knows. Throws an Error
 * with the response for an unexpected status.
 */
export async function fetchJson<Answer>(
  url: string,
  { body, headers = {}, statuses = [200] }: Sent = {},
): Promise<Answer> {
  const post = body && { method: 'POST', body: Buffer.isBuffer(body) ? body : JSON.stringify(body) };
  const response = await fetch(url, { ...post, headers: { 'Content-Type': 'application/json', ...headers } });
  const text = await response.text();
  if (!statuses.includes(response.status)) throw new Error(`${url} answered ${response.status}: ${text.slice(0, 500)}`);
  return JSON.parse(text) as Answer;
}
