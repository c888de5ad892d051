import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { seededRandom, type Random } from '../../../test/support/random';
import { openRecords } from './reader';
import type { CsvOptions, ImportFormat, ReaderState, RecordRefusal } from './record';

const sizeMaxBytes = 64;
const fileCount = size({ run: 3_000, long: 300_000 });
const formats = ['ndjson', 'json', 'csv'] as const;

const csvOptions = (changes: Partial<CsvOptions> = {}): CsvOptions => ({
  separator: ',',
  columns: undefined,
  typeOf: (path) => (path === 'n' ? 'number' : path === 'o.b' ? 'boolean' : path === 'j' ? 'json' : 'string'),
  empty: 'missing',
  ...changes,
});

interface Read {
  start: number;
  line: number;
  text?: string;
  refusal?: RecordRefusal;
}

/** All records of a file that comes in chunks of these sizes, and what is behind the position each time again. */
function readAll(
  format: ImportFormat,
  file: Buffer,
  csv: CsvOptions,
  chunkSize: () => number,
  stopsEarly: () => boolean,
) {
  const records: Read[] = [];
  let offset = 0;
  let line = 0;
  let state: ReaderState = {};
  for (;;) {
    const end = Math.min(file.length, offset + chunkSize());
    const isLast = end === file.length;
    const chunk = { bytes: file.subarray(offset, end), offset, isLast, state };
    const reader = openRecords(format, chunk, csv, sizeMaxBytes);
    let record = reader.next();
    for (; record; record = reader.next()) {
      const text = record.text && { text: record.text.toString('latin1') };
      const refusal = record.refusal && { refusal: record.refusal };
      records.push({ start: offset + record.start, line: line + record.line, ...text, ...refusal });
      if (record.refusal?.isFatal) {
        expect(reader.next()).toBeUndefined();
        return records;
      }
      if (stopsEarly()) break;
    }
    expect(reader.lines).toBe(chunk.bytes.subarray(0, reader.position).toString('latin1').split('\n').length - 1);
    if (!record) {
      const left = chunk.bytes.length - reader.position;
      expect(left).toBeLessThan(isLast ? 1 : sizeMaxBytes + 2);
      if (isLast) return records;
    }
    offset += reader.position;
    line += reader.lines;
    state = JSON.parse(JSON.stringify(reader.state)) as ReaderState;
  }
}

const readWhole = (format: ImportFormat, file: Buffer | string, csv = csvOptions()): Read[] => {
  const bytes = Buffer.from(file);
  const records = readAll(
    format,
    bytes,
    csv,
    () => bytes.length,
    () => false,
  );
  return records.map((record) => ({
    ...record,
    ...(record.text && { text: Buffer.from(record.text, 'latin1').toString() }),
  }));
};

const textsOf = (format: ImportFormat, file: Buffer | string, csv = csvOptions()): string[] =>
  readWhole(format, file, csv).map(
    ({ text, refusal }) => text ?? `${refusal!.isFatal ? 'fatal ' : ''}${refusal!.code}`,
  );

const pick = <T>(random: Random, list: readonly T[]): T => list[random(list.length)]!;

/** Texts of about the largest size of a record. */
const longTexts = (letter: string): string[] => [61, 62, 63, 64, 65, 66].map((length) => letter.repeat(length));

const pieces: Record<ImportFormat, readonly string[]> = {
  ndjson: [
    ...longTexts('x'),
    '{"a":1}',
    '{"b":"ü€"}',
    ' ',
    '\t',
    '[1]',
    '{"a":',
    'x'.repeat(60),
    'x'.repeat(150),
    '{}',
    '\r',
    '"',
    '\\',
  ],
  json: [
    '{"a":1}',
    '{"b":"]}\\"ü"}',
    '{ "a" : [1, {"c": "\\\\"}] }',
    '[1]',
    '7',
    'true',
    '"x,y"',
    '{"a":',
    ' ',
    '\n',
    `{"l":"${'y'.repeat(54)}"}`,
    `{"l":"${'y'.repeat(56)}"}`,
    `{"l":"${'\\"'.repeat(25)}"}`,
    ' '.repeat(80),
    '{"a\n":2}',
    ...longTexts('1'),
  ],
  csv: [
    'a',
    'b',
    '1',
    '-2.50',
    'true',
    '{}',
    '""',
    '"x"',
    '"x,y"',
    '"x\ny"',
    '"x\r\ny"',
    '"""z"""',
    '"',
    '""""',
    'a"b',
    '"x"y',
    '\r',
    ' ',
    'ü€',
    '"ü"',
    'x'.repeat(30),
    'x'.repeat(70),
    `"${'x'.repeat(61)}"`,
    `"${'x\n'.repeat(40)}"`,
    '"x\ny"\rz',
    ...longTexts('x'),
    ...longTexts('x').map((text) => `"${text.slice(6)}\n${'y'.repeat(3)}"`),
  ],
};

/** A file of the format; about a third of them are damaged by bytes at random places. */
function randomFile(random: Random, format: ImportFormat): Buffer {
  const count = random(40);
  let text = pick(random, ['', '', '', '\ufeff', '\n', ' \n\n ']);
  const lineEnd = (): string => pick(random, ['\n', '\n', '\r\n', '\n\n']);
  if (format === 'ndjson')
    for (let i = 0; i < count; i += 1) text += pick(random, pieces.ndjson) + (random(4) ? lineEnd() : '');
  if (format === 'json') {
    const gap = (): string => pick(random, ['', '', ' ', '\n', '\r\n\t']);
    const elements = Array.from(
      { length: count },
      () => gap() + pick(random, pieces.json.slice(0, random(8) ? 7 : undefined)) + gap(),
    );
    text += `[${elements.join(',')}${pick(random, [']', ']\n', ']', gap()])}`;
  }
  if (format === 'csv') {
    text += pick(random, ['s', 'n,s,o.a,o.b,j', 'n,"s" ,o.a,o.b,j', '"n", s ,"o.a",o.b,j', 'n', 'n,s,n']) + lineEnd();
    const isNarrow = random(3) === 0;
    for (let i = 0; i < count; i += 1) {
      const cells = [
        '1',
        pick(random, pieces.csv),
        pick(random, pieces.csv),
        pick(random, ['true', '', 'False']),
        '[1]',
      ];
      if (!random(6)) cells[random(5)] = pick(random, pieces.csv);
      text += (isNarrow ? pick(random, pieces.csv) : cells.slice(0, random(12) ? 5 : 4).join(',')) + lineEnd();
    }
  }
  const file = Buffer.from(text);
  if (random(3) === 0 && file.length > 0) {
    for (let i = 0; i <= random(3); i += 1)
      file[random(file.length)] = pick(random, [...Buffer.from('\n\r",[{}]\\ '), 0xff, 0xe2]);
  }
  return file.subarray(0, random(5) ? file.length : random(file.length + 1));
}

describe.each(formats)('%s', (format) => {
  test.each(partsOf(`chunks of ${format} files`, fileCount))(
    'the records of $cases files are the same wherever they are cut into chunks (seed $seed)',
    ({ seed, cases }) => {
      const random = seededRandom(seed);
      for (let round = 0; round < cases; round += 1) {
        const file = randomFile(random, format);
        const options = csvOptions({
          columns: pick(random, [undefined, ['s'], ['n', 's', 'o.a', 'o.b', 'j']]),
          empty: pick(random, ['missing', 'null', 'string']),
        });
        const whole = readAll(
          format,
          file,
          options,
          () => file.length,
          () => false,
        );
        const spread = pick(random, [1, 10, 200]);
        const chunked = readAll(
          format,
          file,
          options,
          () => sizeMaxBytes + 2 + random(spread),
          () => random(10) === 0,
        );
        // The file helps to find what went wrong.
        expect({ file: file.toString('latin1'), records: chunked }).toEqual({
          file: file.toString('latin1'),
          records: whole,
        });
      }
    },
  );

  test('a UTF-16 file is refused, and a UTF-8 byte order mark is passed over', () => {
    for (const mark of [
      [0xff, 0xfe],
      [0xfe, 0xff],
    ])
      expect(textsOf(format, Buffer.from([...mark, 0x5b, 0]))).toEqual(['fatal VALIDATION_FAILED']);
    const file = { ndjson: '{"s":"1"}', json: '[{"s":"1"}]', csv: 's\n1' }[format];
    expect(textsOf(format, `\ufeff${file}`)).toEqual(['{"s":"1"}']);
  });
});

test.each(partsOf('documents of files', fileCount))(
  '$cases files have the documents that were written to them (seed $seed)',
  ({ seed, cases }) => {
    const random = seededRandom(seed);
    const letters = [...'ab,;"\\\n\r\t []{}ü€😀'];
    const anyText = (): string => Array.from({ length: random(5) }, () => pick(random, letters)).join('');
    for (let round = 0; round < cases; round += 1) {
      const documents = Array.from({ length: random(9) }, () => ({ s: anyText(), t: anyText() }));
      const cell = (text: string): string =>
        random(2) || /[",\n\r]/.test(text) || text === '' ? `"${text.replaceAll('"', '""')}"` : text;
      const lines = documents.map(({ s, t }) => `${cell(s)},${cell(t)}${pick(random, ['\n', '\r\n'])}`);
      const files = {
        ndjson: documents.map((document) => JSON.stringify(document)).join('\n'),
        json: JSON.stringify(documents, undefined, random(2)),
        csv: `s,t\n${lines.join('')}`,
      };
      for (const format of formats) {
        const texts = textsOf(format, files[format]).map((text) => JSON.parse(text) as unknown);
        expect({ file: files[format], documents: texts }).toEqual({ file: files[format], documents });
      }
    }
  },
);

test('without options there is no reader of CSV', () => {
  expect(() => openRecords('csv', { bytes: Buffer.alloc(0), offset: 0, isLast: true, state: {} })).toThrow(TypeError);
});

describe('ndjson', () => {
  test('each line is a record as it stands, empty lines and white space before it are not', () => {
    expect(readWhole('ndjson', '{"a":1}\r\n\n \t\r\n  {"b": 2} \nno json\n{}')).toEqual([
      { start: 0, line: 0, text: '{"a":1}' },
      { start: 16, line: 3, text: '{"b": 2} ' },
      { start: 26, line: 4, text: 'no json' },
      { start: 34, line: 5, text: '{}' },
    ]);
    expect(readWhole('ndjson', ' \n')).toEqual([]);
  });

  test('a line that is too long is refused, and the line behind it is read', () => {
    const [fits, long] = ['x'.repeat(64), 'x'.repeat(65)];
    expect(textsOf('ndjson', `${fits}\r\n${long}\r\n${long}${long}\n${fits}`)).toEqual([
      fits,
      'DOCUMENT_TOO_LARGE',
      'DOCUMENT_TOO_LARGE',
      fits,
    ]);
    expect(readWhole('ndjson', long)[0]!.refusal!.message).toBe('The line is longer than 64 bytes');
  });

  test('a JSON array is told by the first byte of the file', () => {
    expect(readWhole('ndjson', '\n [{}]')).toEqual([
      {
        start: 2,
        line: 1,
        refusal: {
          code: 'VALIDATION_FAILED',
          message: 'The file is a JSON array: its format is json, not ndjson',
          isFatal: true,
        },
      },
    ]);
    expect(textsOf('ndjson', '{}\n[1]')).toEqual(['{}', '[1]']);
  });
});

describe('json', () => {
  test('each object of the array is a record, with white space anywhere', () => {
    expect(readWhole('json', ' [\n{"a":"]},{\\"\\\\"} ,\r\n{"b":[{}]}\n]\n ')).toEqual([
      { start: 3, line: 1, text: '{"a":"]},{\\"\\\\"}' },
      { start: 23, line: 2, text: '{"b":[{}]}' },
    ]);
    const long = `{"a":"${'x'.repeat(26)}\\\\\\"${'x'.repeat(20)}\\\\"}`;
    expect(textsOf('json', `[${long},{}]`)).toEqual([long, '{}']);
    expect(textsOf('json', '[ ]')).toEqual([]);
  });

  test('an element of the largest size fits', () => {
    const object = `{"a":"${'x'.repeat(56)}"}`;
    expect(textsOf('json', `[${object},${'1'.repeat(64)},"${'x'.repeat(62)}",{}]`)).toEqual([
      object,
      'VALIDATION_FAILED',
      'VALIDATION_FAILED',
      '{}',
    ]);
    expect(textsOf('json', `[${'1'.repeat(65)},{}]`)).toEqual(['fatal DOCUMENT_TOO_LARGE']);
  });

  test('elements that are no objects are refused one by one', () => {
    expect(textsOf('json', '[1,{},"a,b",[{},{}],null,-1.5e3 ,{}]')).toEqual(
      [0, 1, 0, 0, 0, 0, 1].map((isObject) => (isObject ? '{}' : 'VALIDATION_FAILED')),
    );
  });

  test.each([
    ['', 0, 'MALFORMED_JSON', 'The file is empty: expected a JSON array'],
    [' \n', 2, 'MALFORMED_JSON', 'The file is empty: expected a JSON array'],
    ['{"a":1}', 0, 'VALIDATION_FAILED', 'The file is no JSON array: its format is ndjson, one document on each line'],
    ['7', 0, 'MALFORMED_JSON', 'Expected a JSON array, which begins with "["'],
    ['[', 1, 'MALFORMED_JSON', 'The array does not end: expected an object or "]"'],
    ['[{}', 3, 'MALFORMED_JSON', 'The array does not end: expected "," or "]"'],
    ['[{},', 4, 'MALFORMED_JSON', 'The array does not end: expected an object'],
    ['[{"a":"', 7, 'MALFORMED_JSON', 'The file ends within an element of the array'],
    ['[{},]', 4, 'MALFORMED_JSON', 'Expected an object'],
    ['[,{}]', 1, 'MALFORMED_JSON', 'Expected an object or "]"'],
    ['[{},,{}]', 4, 'MALFORMED_JSON', 'Expected an object'],
    ['[{}{}]', 3, 'MALFORMED_JSON', 'Expected "," or "]"'],
    ['[{}] []', 5, 'MALFORMED_JSON', 'Expected nothing but white space behind the array'],
    [`[{"a":"${'x'.repeat(57)}"}]`, 1, 'DOCUMENT_TOO_LARGE', 'The element is longer than 64 bytes'],
  ])('%j cannot be read any further', (file, start, code, message) => {
    const last = readWhole('json', file).at(-1)!;
    expect(last).toEqual({
      start,
      line: file.slice(0, start).split('\n').length - 1,
      refusal: { code, message, isFatal: true },
    });
  });
});

describe('csv', () => {
  test('cells within quotes may have separators, line ends and quotes', () => {
    expect(readWhole('csv', 's,t\r\n"a,b","c\r\nd"\r\n\r\n"say ""no""", e \nü,"€\\"')).toEqual([
      { start: 5, line: 1, text: '{"s":"a,b","t":"c\\r\\nd"}' },
      { start: 21, line: 4, text: '{"s":"say \\"no\\"","t":" e "}' },
      { start: 38, line: 5, text: '{"s":"ü","t":"€\\\\"}' },
    ]);
    expect(textsOf('csv', 'a"b', csvOptions({ columns: ['s'] }))).toEqual(['MALFORMED_CSV']);
    expect(textsOf('csv', 'a;b\tc|,"d"', csvOptions({ columns: ['s', 't'] }))).toEqual(['{"s":"a;b\\tc|","t":"d"}']);
    for (const separator of [';', '\t', '|'] as const) {
      expect(textsOf('csv', `s${separator}t\na,b${separator}"${separator}"`, csvOptions({ separator }))).toEqual([
        JSON.stringify({ s: 'a,b', t: separator }),
      ]);
    }
  });

  test('dotted columns are fields of objects, which stand where the first of them is', () => {
    const columns = ['o.a', 's', 'o.p.q', 'o.b'];
    expect(textsOf('csv', '1,2,3,true\n,2,,\n,,,', csvOptions({ columns }))).toEqual([
      '{"o":{"a":"1","p":{"q":"3"},"b":true},"s":"2"}',
      '{"s":"2"}',
      '{}',
    ]);
  });

  test('an empty cell is missing, null or a text as asked for, and always a text in quotes', () => {
    const file = ',""';
    const columns = ['s', 't'];
    expect(textsOf('csv', file, csvOptions({ columns }))).toEqual(['{"t":""}']);
    expect(textsOf('csv', file, csvOptions({ columns, empty: 'null' }))).toEqual(['{"s":null,"t":""}']);
    expect(textsOf('csv', file, csvOptions({ columns, empty: 'string' }))).toEqual(['{"s":"","t":""}']);
  });

  test('a number, a boolean or JSON cannot be empty: such a cell is missing or null, also in quotes', () => {
    const file = ',,\n"","",""';
    const columns = ['n', 'o.b', 'j'];
    for (const empty of ['missing', 'string'] as const) {
      expect(textsOf('csv', file, csvOptions({ columns, empty }))).toEqual(['{}', '{}']);
    }
    const nulls = '{"n":null,"o":{"b":null},"j":null}';
    expect(textsOf('csv', file, csvOptions({ columns, empty: 'null' }))).toEqual([nulls, nulls]);
  });

  test('spaces around a name in the header belong to it within quotes only', () => {
    const names = ' s ," t ",\ufeffu,"\ufeffv"';
    const members = { s: '1', ' t ': '2', u: '3', '\ufeffv': '4' };
    expect(textsOf('csv', `${names}\n1,2,3,4`)).toEqual([JSON.stringify(members)]);
    expect(textsOf('csv', '"{s","[t"\n1,2')).toEqual(['{"{s":"1","[t":"2"}']);
  });

  test('cells become values of the type of their column with their exact digits', () => {
    const options = csvOptions({ columns: ['n', 'o.b', 'j'] });
    expect(textsOf('csv', ' 1.50 ,TRUE,"{""a"": 1e2}"\n-12345678901234567890,False,null', options)).toEqual([
      '{"n":1.50,"o":{"b":true},"j":{"a": 1e2}}',
      '{"n":-12345678901234567890,"o":{"b":false},"j":null}',
    ]);
    expect(readWhole('csv', '01,yes,{', options)[0]!.refusal).toEqual({
      code: 'SCHEMA_VIOLATION',
      message: 'A cell is not of the type of its column',
      details: { n: ['must be a number'], 'o.b': ['must be true or false'], j: ['must be JSON'] },
    });
  });

  test.each([
    ['a,"b\nc,d\ne,f', 'A quote is not closed', 2],
    [`a,"b\nc,d\n${'e,f\n'.repeat(20)}`, 'A quote is not closed', 21],
    ['a,"b"c\nc,d', 'Text follows a closing quote', 1],
    ['a,"b\nc"d,"e"\nf,g', 'Text follows a closing quote', 1],
    ['a,b"\nc,d', 'A quote stands within a cell that does not begin with one', 1],
    ['a,b,c\nc,d', 'The line has 3 cells, and there are 2 columns', 1],
    ['a\nc,d', 'The line has 1 cell, and there are 2 columns', 1],
  ])('%j has a line that is refused, and the lines that follow are read', (file, message, good) => {
    const records = readWhole('csv', file, csvOptions({ columns: ['s', 't'] }));
    expect(records[0]).toEqual({ start: 0, line: 0, refusal: { code: 'MALFORMED_CSV', message } });
    expect(records.filter(({ text }) => text)).toHaveLength(good);
  });

  test('a line that is not UTF-8 or too long is refused, and the line behind it is read', () => {
    const options = csvOptions({ columns: ['s'] });
    expect(
      readWhole('csv', Buffer.from([0x61, 0x0a, 0xff, 0x0a, 0x62]), options).map(
        ({ text, refusal }) => text ?? refusal!.message,
      ),
    ).toEqual(['{"s":"a"}', 'The line is not UTF-8', '{"s":"b"}']);
    const [fits, long] = ['x'.repeat(64), 'x'.repeat(65)];
    expect(textsOf('csv', `"${'x'.repeat(62)}"\r\n`, options)).toEqual([JSON.stringify({ s: 'x'.repeat(62) })]);
    expect(textsOf('csv', `${fits}\r\n${long}\r\n"${long}${long}"\n"a\n${long}${long}"\nb`, options)).toEqual([
      JSON.stringify({ s: fits }),
      'DOCUMENT_TOO_LARGE',
      'DOCUMENT_TOO_LARGE',
      'MALFORMED_CSV',
      'DOCUMENT_TOO_LARGE',
      '{"s":"b"}',
    ]);
  });

  test.each([
    ['s,,t', 'The header is not valid: Column 2 has no name'],
    ['s, s ', 'The header is not valid: The column "s" is there twice'],
    ['"s', 'The header is not valid: A quote is not closed'],
    [' \n{"a":1}', 'The header is not valid: Column 1 has no name'],
    ['{"a":1}', 'The file is JSON: its format is ndjson or json, not csv'],
    ['\r\n[', 'The file is JSON: its format is ndjson or json, not csv'],
  ])('the header %j ends the file', (file, message) => {
    const records = readWhole('csv', `${file}\na,b`);
    expect(records.map(({ refusal }) => refusal)).toEqual([{ code: 'VALIDATION_FAILED', message, isFatal: true }]);
  });

  test('columns that are given are checked too', () => {
    const [record] = readWhole('csv', 'a,b', csvOptions({ columns: ['a', 'a'] }));
    expect(record!.refusal).toMatchObject({ message: 'The column "a" is there twice', isFatal: true });
  });

  test('a header alone is behind the position, and is remembered', () => {
    const bytes = Buffer.from('\n s ,"o.a"\nx');
    const reader = openRecords('csv', { bytes, offset: 0, isLast: false, state: {} }, csvOptions());
    expect(reader.next()).toBeUndefined();
    expect(reader).toMatchObject({ position: 11, lines: 2, state: { columns: ['s', 'o.a'], hasBegun: true } });
    expect(textsOf('csv', 's,t\n')).toEqual([]);
  });
});
