/** Bytes of a list: clients and proxies take few kilobytes of headers. */
const listBytesMax = 2_000;

/** Texts as a JSON list for a header, which takes printable ASCII only. The last one is `…` where there are more. */
export function headerList(texts: readonly string[]): string {
  const items: string[] = [];
  let bytes = 0;
  for (const text of texts) {
    const item = asciiJson(text);
    bytes += item.length;
    if (bytes > listBytesMax) {
      items.push(asciiJson('…'));
      break;
    }
    items.push(item);
  }
  return `[${items.join(',')}]`;
}

const asciiJson = (text: string): string =>
  JSON.stringify(text).replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
