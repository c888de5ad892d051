import type { App } from '@granary/client';
import { exportRequestOf, type ExportOptions } from './export-request.ts';
import { ExportSource } from './export-source.ts';

const { signal } = new AbortController();

/** Exports a table whose first answer breaks off behind two rows. Resolves to its text, and the queries of it. */
async function brokenTable(header: string, rows: string[], options: ExportOptions) {
  const queries: Array<Record<string, unknown>> = [];
  const table = [header, ...rows].map((line) => `${line}\r\n`);
  const answer = (lines: string[], isWhole: boolean) => {
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        const line = lines.shift();
        if (line !== undefined) controller.enqueue(Buffer.from(line));
        else if (isWhole) controller.close();
        else controller.error(new Error('broken off'));
      },
    });
    return new Response(body, { headers: { 'x-granary-height': '7' } });
  };
  const open = (_path: string, { query }: { query: Record<string, unknown> }) => {
    queries.push(query);
    if (queries.length === 1) return Promise.resolve(answer(table.slice(0, 3), false));
    const start = query['after'] === undefined ? 0 : 3;
    return Promise.resolve(answer(start === 0 ? [...table] : [table[0]!, ...table.slice(start)], true));
  };
  const source = new ExportSource(
    { id: 'demo', open } as unknown as App,
    exportRequestOf('rows', { format: 'csv', ...options }),
  );
  let text = '';
  for await (const { bytes } of source.read(signal)) text += bytes.toString();
  return { text, whole: table.join(''), queries };
}

const wide = (count: number, name: string) =>
  ['id', ...Array.from({ length: count - 1 }, (_, n) => `${name}${n}`)].join(',');

test.each<[string, string, ExportOptions, boolean]>([
  ['few columns', 'id,t', {}, true],
  ['columns that take more of a URL than they have characters', wide(600, 'größe'), {}, false],
  ['a filter that leaves no room for columns', 'id,t', { find: JSON.stringify({ t: 'é'.repeat(2_500) }) }, false],
  ['1,000 columns', wide(1_000, 'c'), {}, true],
  ['more columns than can be named', wide(1_001, 'c'), {}, false],
  ['an id that is not selected', 'id,t', { select: 't', columns: 'id,t' }, false],
  ['an id that is selected', 'id,t', { select: 'id,t' }, true],
])('a table that breaks off is whole with %s', async (_, header, options, goesOnBehindIds) => {
  const selectsId = options.select === undefined || options.select.includes('id');
  const { text, whole, queries } = await brokenTable(
    header,
    ['a', 'b', 'c', 'd'].map((id) => (selectsId ? `${id},1` : ',1')),
    options,
  );
  expect(text).toBe(whole);
  expect(queries).toHaveLength(2);
  expect(queries[1]!['at']).toBe(7);
  expect(queries[1]!['after']).toBe(goesOnBehindIds ? 'b' : undefined);
});

test('empty lines, by which a service that finds nothing is there, are no records', async () => {
  const lines = ['{"id":"a"}', '{"id":"b","t":"\\n\\n"}', '{"id":"c"}', '{"id":"é"}'].map((line) => `${line}\n`);
  const answers = [
    ['\n', '\n', lines[0]!, `\n${lines[1]!.slice(0, -1)}`, '\n', '\n\n', 'cut off'],
    ['\n', `${lines[2]}\n\n\n${lines[3]}`, '\n'],
  ];
  const queries: Array<Record<string, unknown>> = [];
  const open = (_path: string, { query }: { query: Record<string, unknown> }) => {
    queries.push(query);
    const chunks = answers.shift()!;
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        const chunk = chunks.shift();
        if (chunk === 'cut off') controller.error(new Error(chunk));
        else if (chunk === undefined) controller.close();
        else controller.enqueue(Buffer.from(chunk));
      },
    });
    return Promise.resolve(new Response(body, { headers: { 'x-granary-height': '7' } }));
  };
  const source = new ExportSource({ id: 'demo', open } as unknown as App, exportRequestOf('rows', {}));
  let text = '';
  for await (const { bytes } of source.read(signal)) text += bytes.toString();
  expect([text, source.records, queries[1]!['after']]).toEqual([lines.join(''), 4, 'b']);
});
