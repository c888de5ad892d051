import type { ServerResponse } from 'node:http';

/** The answers that are left open, by the category of documents that they are told of. */
const followers = new Map<string, Set<ServerResponse>>();
let height = 0;

/** Leaves the answer open and, from then on, tells it of new documents of these categories. */
export function follow(response: ServerResponse, categories: readonly string[]): void {
  for (const category of categories) {
    const responses = followers.get(category) ?? new Set();
    followers.set(category, responses.add(response));
  }
  response.on('close', () => {
    for (const category of categories) followers.get(category)!.delete(response);
  });
  response.writeHead(200, { 'Content-Type': 'application/x-ndjson' }).write('{"event":"progress"}\n');
}

/** Tells of a new document. The event is written once, and has about as many bytes as one of Granary. */
export function broadcast(table: string, { id, category }: Record<string, unknown>, text: string): void {
  const responses = followers.get(String(category));
  if (!responses?.size) return;
  height += 1;
  const place = { event: 'put', cursor: `${height}.1-00000000`, as: ['followed'], height, place: 0, collection: table };
  const head = JSON.stringify({ ...place, id, version: 1, at: new Date(), sha256: '0'.repeat(64) });
  const event = Buffer.from(`${head.slice(0, -1)},"document":${text},"last":true}\n`);
  for (const response of responses) response.write(event);
}
