// Prints the ids of all versions of all documents of a collection, as a line of JSON: what was stored twice is there
// twice.
const [url = '', key = '', app = '', collection = ''] = process.argv.slice(2);
const headers = { 'content-type': 'application/json', 'x-app-key': key };
const query = { include_history: true, select: ['id'], sort: ['id'], limit: 1_000, count: 'none' };

interface Page {
  records: { id: string }[];
  next_cursor?: string | null;
}

async function readPage(cursor: string | undefined): Promise<Page> {
  const body = { root: `${app}::${collection}`, ...query, ...(cursor !== undefined && { cursor }) };
  const response = await fetch(`${url}/list`, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status} ${text}`);
  return JSON.parse(text) as Page;
}

async function printIds(): Promise<void> {
  const ids: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await readPage(cursor);
    ids.push(...page.records.map(({ id }) => id));
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  console.log(JSON.stringify(ids));
}

void printIds();
