import { parseAsWritten } from '../exact-json.ts';
import { fieldsOf, printRecords } from './record-table.ts';
import { Terminal, type TerminalStreams } from './terminal.ts';

/** A terminal of so many columns, with what was written to it. */
function terminalOf(columns: number) {
  const written = { stdout: '', stderr: '' };
  const stream = (name: 'stdout' | 'stderr') => ({
    isTTY: true,
    columns,
    write: (text: string) => ((written[name] += text), true),
  });
  const streams = { stdin: {}, stdout: stream('stdout'), stderr: stream('stderr') } as unknown as TerminalStreams;
  return { terminal: new Terminal(streams, { color: false }), written };
}

test('the id comes first, then the fields as they appear', () => {
  expect(
    fieldsOf([
      { title: 'Emma', id: 'e' },
      { year: 1922, title: 'Ulysses' },
    ]),
  ).toEqual(['id', 'title', 'year']);
  expect(fieldsOf([{ title: 'Emma' }])).toEqual(['title']);
  expect(fieldsOf([])).toEqual([]);
});

test('a table shows digits as they are written, and no control characters of documents', async () => {
  const { terminal, written } = terminalOf(80);
  const records = parseAsWritten('[{"title":"a\\u001b[31mb","id":"1","price":12.50},{"id":"2","price":1e400}]');
  await printRecords(terminal, records as Array<Record<string, unknown>>);
  expect(written.stdout).toBe('id  title    price\n1   a\uFFFD[31mb  12.50\n2            1e400\n');
  expect(written.stderr).toBe('');
});

test('fields that have no room are named', async () => {
  const { terminal, written } = terminalOf(28);
  await printRecords(terminal, [{ id: '1', a: 'x'.repeat(30), b: 'y'.repeat(30), c: 1, d: 2 }]);
  const lines = written.stdout.trimEnd().split('\n');
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(28);
  expect(lines[0]).toMatch(/^id +a +b$/);
  expect(written.stderr).toBe('There is no room for c, d: --select chooses fields, and --json prints all.\n');
});

test('styles reach a terminal, and end with their line', async () => {
  const { terminal, written } = terminalOf(80);
  await terminal.print('\u001b[1mid\u001b[22m \u001b[2K');
  expect(written.stdout).toBe('\u001b[1mid\u001b[22m \uFFFD[2K\u001b[0m\n');
  await terminal.print('a\u001b[8mb\u202e');
  expect(written.stdout.split('\n')[1]).toBe('a\uFFFD[8mb\uFFFD');
});

test('ids stay whole, so that they can be copied, unless they take more than half of the width', async () => {
  const { terminal, written } = terminalOf(60);
  const id = '01a22eed-3531-71e6-935a';
  await printRecords(terminal, [{ id, a: 'x'.repeat(50), b: 'y'.repeat(50) }]);
  expect(written.stdout.split('\n')[1]).toMatch(/^01a22eed-3531-71e6-935a {2}x+… +y+…$/);
  const narrow = terminalOf(40);
  await printRecords(narrow.terminal, [{ id, a: 'x'.repeat(50) }]);
  expect(narrow.written.stdout.split('\n')[1]).toMatch(/^01a\S+… +x+…$/);
});
