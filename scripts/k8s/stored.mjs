// Prints the ids of all versions of all documents of a collection, as a line of JSON: what was stored twice is there
// twice.
const [url, key, app, collection] = process.argv.slice(2);
const headers = { 'content-type': 'application/json', 'x-app-key': key };
const query = { include_history: true, select: ['id'], sort: ['id'], limit: 1_000, count: 'none' };
const ids = [];
for (let cursor; cursor !== null;) {
  const body = { root: `${app}::${collection}`, ...query };
  const response = await fetch(`${url}/list`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ ...body, ...(cursor && { cursor }) }),
  });
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status} ${text}`);
  const page = JSON.parse(text);
  ids.push(...page.records.map(({ id }) => id));
  cursor = page.next_cursor ?? null;
}
console.log(JSON.stringify(ids));
