import { UsageError } from '../failure.ts';
import { readCondition } from './condition.ts';
import { checkFilter, filterText, presentFilterText, publicFilter, typeHint, type Filter } from './filter.ts';

const filterOf = (...args: string[]): Filter => ({ conditions: args.map(readCondition), texts: [] });

test.each([
  ['year>=1900', '{"year.$gte":1900}'],
  ['year >= 1900', '{"year.$gte":1900}'],
  ['price<9.90', '{"price.$lt":9.90}'],
  ['serial=12345678901234567890', '{"serial.$is":12345678901234567890}'],
  ['at>2026-01-01T00:00:00Z', '{"at.$gt":"2026-01-01T00:00:00Z"}'],
  ['title=Emma', '{"title.$is":"Emma"}'],
  ['title="1900"', '{"title.$is":"1900"}'],
  ['zip=01234', '{"zip.$is":"01234"}'],
  ['title=""', '{"title.$is":""}'],
  ['title=He said: a=b', '{"title.$is":"He said: a=b"}'],
  ['sold=true', '{"sold.$is":true}'],
  ['shelf!=A', '{"shelf.$isNot":"A"}'],
  ['shelf!=A,B', '{"shelf.$notIn":["A","B"]}'],
  ['shelf=A, B', '{"shelf.$in":["A","B"]}'],
  ['name="Doe, John",Ann', '{"name.$in":["Doe, John","Ann"]}'],
  ['name="Doe, John"', '{"name.$is":"Doe, John"}'],
  ['shelf=["A","B"]', '{"shelf.$in":["A","B"]}'],
  ['size={"w":1.0}', '{"size.$is":{"w":1.0}}'],
  ['year=1900..1950', '{"year.$between":[1900,1950]}'],
  ['year=-5 .. 1e3', '{"year.$between":[-5,1e3]}'],
  ['name="a".."b,c"', '{"name.$between":["a","b,c"]}'],
  ['path="../x"', '{"path.$is":"../x"}'],
  ['shelf=', '{"shelf.$is":null}'],
  ['shelf=null', '{"shelf.$is":null}'],
  ['shelf!=', '{"shelf.$isNot":null}'],
  ['title~=^Em\\d+, "x"', '{"title.$regExpMatches":"^Em\\\\d+, \\"x\\""}'],
  ['title~=/^em/i', '{"title.$regExpMatches":"/^em/i"}'],
  ['title^=19', '{"title.$startsWith":"19"}'],
  ['title$=ma', '{"title.$endsWith":"ma"}'],
  ['tags*=x', '{"tags.$contains":"x"}'],
  ['marks*=5', '{"marks.$contains":5}'],
  ['author.name=Jane Austen', '{"author.name.$is":"Jane Austen"}'],
  ['in=5', '{"in.$is":5}'],
  ['price.$gte=10', '{"price.$gte":10}'],
  ['ip.$CIDR=10.0.0.0/8', '{"ip.$CIDR":["10.0.0.0/8"]}'],
  ['text.$search=1900 war', '{"text.$search":"1900 war"}'],
  ['year.$between=1900..1950', '{"year.$between":[1900,1950]}'],
  ['isbn.$exists=true', '{"isbn.$exists":true}'],
])('%s is the filter %s', (argument, json) => {
  expect(filterText(filterOf(argument))).toBe(json);
});

test.each([
  ['', /^"" is not a filter/],
  ['year', /^"year" is not a filter: a field, an operator and a value/],
  ['title:Emma', /is not a filter/],
  ['=5', /is not a filter/],
  ['year!>5', /is not a filter/],
  ['year==1900', /= begins no value/],
  ['year=>1900', /> begins no value/],
  ['year>', /null cannot be compared/],
  ['year<null', /null cannot be compared/],
  ['year>[1]', /a number or a text is expected/],
  ['title~=', /the text to compare with is missing/],
  ['title^=""', /the text to compare with is missing/],
  ['title~="\\d"', /is not a text of JSON/],
  ['title="Emma', /is not a text of JSON/],
  ['title=say "hi"', /quotes are put around the whole value/],
  ['shelf=A,,B', /an element of the list is empty/],
  ['shelf=A,', /an element of the list is empty/],
  ['shelf=[]', /the list is empty/],
  ['shelf=[A]', /what begins with \[ has to be JSON/],
  ['year=1900..', /a range has two ends/],
  ['year=..1950', /a range has two ends/],
  ['year=1..2,3..4', /two dots stand between the ends of a range/],
  ['year=1950..1900', /the range is empty, for 1950 is greater than 1900/],
  ['year!=1900..1950', /a range cannot be excluded/],
  ['price.$gte>=10', /has two operators, \$gte and >=/],
  ['price>.5', /\.5 is not a number as JSON has it/],
  ['price=5.', /5\. is not a number as JSON has it/],
  ['year>=+5', /\+5 is not a number as JSON has it/],
  ['year=1900..x', /1900 and x are of two types/],
  ['day=2021-01-01..2020-01-01', /the range is empty/],
  ['year.$between=5', /a range has two ends/],
])('%s is refused, with an example', (argument, message) => {
  let error: unknown;
  try {
    readCondition(argument);
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toBeInstanceOf(UsageError);
  expect((error as UsageError).message).toMatch(message);
  expect((error as UsageError).message).toContain(`"${argument}"`);
  expect((error as UsageError).nextStep).toMatch(/'.+'\.$/);
});

test('several conditions and whole filters have to be met together', () => {
  const filter = { ...filterOf('year>=1900', 'year<1950'), texts: ['{"or":[{"a":1.50},{"b":2}]}'] };
  expect(filterText(filter)).toBe('{"and":[{"year.$gte":1900},{"year.$lt":1950},{"or":[{"a":1.50},{"b":2}]}]}');
  expect(filterText({ conditions: [], texts: [] })).toBeUndefined();
});

test('what is deleted is left out, unless the filter says which it wants', () => {
  expect(presentFilterText({ conditions: [], texts: [] })).toBe('{"deleted.$isNot":true}');
  expect(presentFilterText(filterOf('a=1'))).toBe('{"and":[{"a.$is":1},{"deleted.$isNot":true}]}');
  expect(presentFilterText(filterOf('deleted=true'))).toBe('{"deleted.$is":true}');
  expect(presentFilterText({ conditions: [], texts: ['{"or":[{"deleted" : true}]}'] })).toBe(
    '{"or":[{"deleted" : true}]}',
  );
  const ofMember = { conditions: [], texts: ['{"state":{"deleted":false}}'] };
  expect(presentFilterText(ofMember)).toBe('{"and":[{"deleted.$isNot":true},{"state":{"deleted":false}}]}');
});

test('a public read gets texts of digits where JavaScript has no such number', () => {
  const typed = ['serial=12345678901234567890', 'year=1900..1950', 'n=1,0.10000000000000001', 's=A,B'];
  const filter = { ...filterOf(...typed), texts: ['{"a":{"in":["x",1]}}'] };
  expect(publicFilter(filter)).toEqual({
    and: [
      { serial: { is: '12345678901234567890' } },
      { year: { between: [1900, 1950] } },
      { n: { in: '1,0.10000000000000001' } },
      { s: { in: ['A', 'B'] } },
      { a: { in: ['x', 1] } },
    ],
  });
});

test('a public read refuses an operator that is none, for in its URL that would be a field', () => {
  expect(() => publicFilter(filterOf('year.$gtee=5'))).toThrow('there is no operator $gtee');
  expect(publicFilter(filterOf('year.$gte=5'))).toEqual({ and: [{ year: { gte: 5 } }] });
});

test('who compares with numbers is told how texts are written', () => {
  expect(typeHint(filterOf('isbn=978', 'title=Emma', 'year>=1900', 'year<1950'), [])).toBe(
    `isbn, year were compared by type: texts that look like numbers are put into quotes, as in 'isbn="978"'`,
  );
  expect(typeHint(filterOf('isbn=978', 'year=1900,1901'), ['isbn'])).toBe(
    `year was compared by type: texts that look like numbers are put into quotes, as in 'year="1900"'`,
  );
  expect(typeHint(filterOf('title=Emma', 'isbn="978"', 'deleted=true', 'shelf='), [])).toBeUndefined();
});

test.each([['[]'], ['null'], ['{}'], ['"x"']])('%s is no filter', (json) => {
  expect(() => checkFilter(JSON.parse(json), json)).toThrow(UsageError);
});
