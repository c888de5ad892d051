import { Columns, readDocument, sampledColumns, schemaColumns } from './columns';
import { CsvWriter } from './csv';
import { linesIn, partsOf } from './json-lines';

const lines = (...documents: Array<object | string>): Buffer =>
  Buffer.from(documents.map((one) => `${typeof one === 'string' ? one : JSON.stringify(one)}\n`).join(''));

const csvOf = (names: readonly string[], documents: Buffer, escapesFormulas = false): string => {
  const csv = new CsvWriter(new Columns(names), escapesFormulas);
  return Buffer.concat([csv.head(), csv.rows(documents)]).toString();
};

describe('CSV', () => {
  test('missing and null are empty, an empty text has quotes, lists and objects are JSON, numbers keep their digits', () => {
    const documents = lines(
      '{"a":null,"b":"","c":[1,{"x":"y"}],"d":1.50,"e":12345678901234567890}',
      '{"d":true,"f":{"g":1}}',
    );
    expect(csvOf(['a', 'b', 'c', 'd', 'e', 'f'], documents)).toBe(
      'a,b,c,d,e,f\r\n,"","[1,{""x"":""y""}]",1.50,12345678901234567890,\r\n,,,true,,"{""g"":1}"\r\n',
    );
  });

  test('what separates cells or lines is in quotes, in names too', () => {
    const documents = lines({ 'a,b': 'x\ny', c: 'say "no"', d: 'x\ry', e: ' x ', f: "it's; fine" });
    expect(csvOf(['a,b', 'c', 'd', 'e', 'f'], documents)).toBe(
      '"a,b",c,d,e,f\r\n"x\ny","say ""no""","x\ry", x ,it\'s; fine\r\n',
    );
  });

  test('a name is in quotes where an import would take it for something else', () => {
    const names = [' a', 'b\u00a0', '\ufeffc', '{d', '[e', ' "f" ', 'g h', 'i{'];
    expect(csvOf(names, lines())).toBe('" a","b\u00a0","\ufeffc","{d","[e"," ""f"" ",g h,i{\r\n');
  });

  test('texts that a spreadsheet takes for formulas get an apostrophe where that is asked for, numbers do not', () => {
    const documents = lines({ a: '=1+1', b: '+1', c: '-1', d: '@x', e: '\tx', f: -1, g: ['=1'], h: 'a=1' });
    const names = [...'abcdefgh'];
    expect(csvOf(names, documents)).toContain('=1+1,+1,-1,@x,\tx,-1,');
    expect(csvOf(names, documents, true)).toBe(`${names.join(',')}\r\n'=1+1,'+1,'-1,'@x,'\tx,-1,"[""=1""]",a=1\r\n`);
  });
});

describe('columns', () => {
  test('a field inside of an object has a dotted path, and its object has no value then', () => {
    const columns = new Columns(['a', 'a.b', 'a.c.d']);
    expect(
      columns.valuesOf(
        new Map([
          [
            'a',
            new Map<string, string | Map<string, string>>([
              ['b', '1'],
              ['c', new Map([['d', '2']])],
            ]),
          ],
        ]),
      ),
    ).toEqual([undefined, '1', '2']);
    expect(columns.valuesOf(new Map([['a', 'plain']]))).toEqual(['plain', undefined, undefined]);
    expect(columns.omittedFields).toEqual([]);
  });

  test('fields without a column are named once, at most a hundred of them, and none that is null', () => {
    const csv = new Columns(['a', 'n.x']);
    const omitted = (value: object) => {
      csv.valuesOf(readDocument(Buffer.from(JSON.stringify(value))));
      return csv.omittedFields;
    };
    expect(omitted({ a: '1', b: null })).toEqual([]);
    expect(omitted({ 'b.c': '1', n: { y: '1' }, d: '1' })).toEqual(['b.c', 'n.y', 'd']);
    expect(omitted({ d: '2', n: '3' })).toEqual(['b.c', 'n.y', 'd', 'n']);
    const many = omitted(Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`f${index}`, '1'])));
    expect(many).toHaveLength(101);
    expect(many.at(-1)).toBe('…');
  });

  test('those of the first documents come in the order of their fields, without names that are no path', () => {
    expect(sampledColumns(lines({ id: 'a', b: { c: 1, d: {} }, 'x.y': 1, '': 1 }, { b: 1, e: [], id: 'b' }))).toEqual([
      'id',
      'b.c',
      'b.d',
      'b',
      'e',
    ]);
    const wide = Object.fromEntries(Array.from({ length: 2_000 }, (_, index) => [`f${index}`, 1]));
    expect(sampledColumns(lines(wide))).toHaveLength(1_000);
    const late = Array.from({ length: 1_001 }, (_, index) => (index === 1_000 ? { late: 1 } : { id: `d${index}` }));
    expect(sampledColumns(lines(...late))).toEqual(['id']);
  });

  test('those of a schema leave out objects whose fields it names', () => {
    expect(schemaColumns(['a', 'b', 'b.c', 'b.d.e', 'f.g'])).toEqual(['a', 'b.c', 'b.d.e', 'f.g']);
  });

  test('a column that nothing is known of gets a hint with the name that is near', () => {
    const columns = new Columns(['id', 'yaer', 'title', 'declared']);
    expect(columns.hints([])).toEqual([]);
    columns.valuesOf(
      new Map([
        ['id', 'a'],
        ['year', '1'],
        ['title', 'x'],
      ]),
    );
    expect(columns.hints(['declared'])).toEqual([
      'yaer is in none of the schema and the first 1 documents: did you mean year?',
    ]);
  });
});

test('parts have whole lines, of about so many bytes or of one longer line', () => {
  const text = lines('1', '22', '333', 'x'.repeat(50), '4', '5');
  for (const bytes of [1, 2, 3, 7, 20, 60, 1_000]) {
    const parts = [...partsOf(text, bytes)];
    expect(Buffer.concat(parts).equals(text)).toBe(true);
    for (const part of parts) {
      expect(part.at(-1)).toBe(0x0a);
      expect(part.length <= bytes + 1 || part.indexOf(0x0a) === part.length - 1).toBe(true);
    }
  }
  expect([...partsOf(Buffer.alloc(0), 10)]).toEqual([]);
  expect([...linesIn(text)].map((line) => line.toString())).toEqual(['1', '22', '333', 'x'.repeat(50), '4', '5']);
});
