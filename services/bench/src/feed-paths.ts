import { fetchJson } from './fetch-json';
import type { App, GranarySide } from './sides';

const tokenSeconds = 86_400;

/** The paths of feeds of `documents` by tokens: one token for each of the filters, which the feeds have in turn. */
export async function feedPaths(
  side: Pick<GranarySide, 'url'>,
  name: string,
  { headers }: Pick<App, 'headers'>,
  filters: readonly object[],
  feeds: number,
): Promise<string[]> {
  const tokens: string[] = [];
  for (const find of filters) {
    const body = { subscriptions: [{ as: 'followed', collection: 'documents', find }], ttl_seconds: tokenSeconds };
    const url = `${side.url}/api/apps/${name}/feed-tokens`;
    tokens.push((await fetchJson<{ token: string }>(url, { body, headers, statuses: [201] })).token);
  }
  return Array.from({ length: feeds }, (_, number) => {
    return `/api/apps/${name}/changes?token=${tokens[number % tokens.length]!}`;
  });
}
