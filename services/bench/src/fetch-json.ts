/**
 * Sends JSON, or the bytes of a Buffer, and returns parsed JSON. Throws an Error with the response for an unexpected
 * status.
 */
export async function fetchJson(url, { body, headers = {}, statuses = [200] } = {}) {
  const sent = body && { method: 'POST', body: Buffer.isBuffer(body) ? body : JSON.stringify(body) };
  const response = await fetch(url, { ...sent, headers: { 'Content-Type': 'application/json', ...headers } });
  const text = await response.text();
  if (!statuses.includes(response.status)) throw new Error(`${url} answered ${response.status}: ${text.slice(0, 500)}`);
  return JSON.parse(text);
}
