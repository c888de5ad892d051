// Prints the ids of all documents that the clients of traffic.mjs have stored, as a line of JSON.
const [url, key, app] = process.argv.slice(2);
const headers = { 'content-type': 'application/json', 'x-app-key': key };
const ids = [];
for (let cursor; cursor !== null;) {
  const body = { root: `${app}::traffic`, select: ['id'], sort: ['id'], limit: 1_000, count: 'none' };
  const response = await fetch(`${url}/list`, {
    ...{ method: 'POST', headers },
    body: JSON.stringify({ ...body, ...(cursor && { cursor }) }),
  });
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status} ${text}`);
  const page = JSON.parse(text);
  ids.push(...page.records.map(({ id }) => id));
  cursor = page.next_cursor ?? null;
}
console.log(JSON.stringify(ids));
