import { RE2JS } from 're2js';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { testDatabase } from '@granary/testing/database';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { parseRegexp, RegexpLimitError, type Regexp } from '../src/query/language/regexp/regexp';
import { RegexpSyntaxError } from '../src/query/language/regexp/reader';
import { toPostgresExpression } from '../src/query/sql/postgres-expression';
import { log } from './support/data-service';
import { hardExpressions, hardTexts } from './support/hard-expressions';
import { seededRandom } from './support/random';
import { expressionGenerator, textGenerator } from './support/regexp-generator';

const expressionCount = size({ run: 2_000, long: 400_000 });
const batchSize = 250;
const textsOfEach = 12;

let pool: Pool;
beforeAll(async () => {
  const { url } = await testDatabase();
  pool = createPool({ url, size: 1, applicationName: 'test', log });
});
afterAll(() => pool.end());

interface Case {
  expression: string;
  texts: readonly string[];
}

/** Undefined where the expression is refused for its syntax; a limit is no answer. */
function parsed(expression: string): Regexp | 'refused' | 'beyond a limit' {
  try {
    return parseRegexp(expression);
  } catch (error) {
    if (error instanceof RegexpSyntaxError) return 'refused';
    if (error instanceof RegexpLimitError) return 'beyond a limit';
    throw error;
  }
}

function oracle(expression: string): RE2JS | 'refused' {
  try {
    return RE2JS.compile(expression);
  } catch {
    return 'refused';
  }
}

/** What Postgres finds: for each case, whether each of its texts matches. */
async function matches(cases: ReadonlyArray<{ regexp: Regexp; texts: readonly string[] }>): Promise<boolean[][]> {
  const possible = cases.filter(({ regexp }) => regexp.tree.kind !== 'never');
  const found = await pool.query<{ found: boolean[] }>(
    `select (select array_agg(t.value ~ c.expression collate "C" order by t.n)
        from json_array_elements_text(c.texts::json) with ordinality as t (value, n)) as found
      from unnest($1::text[], $2::text[]) with ordinality as c (expression, texts, n) order by c.n`,
    [
      possible.map(({ regexp }) => toPostgresExpression(regexp.tree)),
      possible.map(({ texts }) => JSON.stringify(texts)),
    ],
  );
  const rows = found.rows[Symbol.iterator]();
  return cases.map(({ regexp, texts }) =>
    regexp.tree.kind === 'never' ? texts.map(() => false) : (rows.next().value as { found: boolean[] }).found,
  );
}

/** Where we and RE2 differ, by what is accepted and by what matches. */
async function differences(cases: readonly Case[]): Promise<unknown[]> {
  const found: unknown[] = [];
  const comparable: Array<{ expression: string; texts: readonly string[]; regexp: Regexp; re2: RE2JS }> = [];
  for (const { expression, texts } of cases) {
    const [regexp, re2] = [parsed(expression), oracle(expression)];
    if (regexp === 'beyond a limit') continue;
    if (regexp === 'refused' || re2 === 'refused') {
      if (regexp !== re2) found.push({ expression, refusedBy: regexp === 'refused' ? 'us' : 'RE2' });
    } else comparable.push({ expression, texts, regexp, re2 });
  }
  const results = await matches(comparable);
  comparable.forEach(({ expression, texts, regexp, re2 }, at) => {
    texts.forEach((text, n) => {
      const expected = re2.matcher(text).find();
      if (results[at]![n] !== expected) found.push({ expression, text, expected });
      if (expected && !text.startsWith(regexp.prefix)) found.push({ expression, text, prefix: regexp.prefix });
    });
  });
  return found;
}

test.each(partsOf('regular expressions', expressionCount))(
  '$cases expressions match in Postgres what they match in RE2, and are refused where RE2 refuses them (seed $seed)',
  async ({ seed, cases: count }) => {
    const random = seededRandom(seed);
    const [expression, text] = [expressionGenerator(random), textGenerator(random)];
    for (let done = 0; done < count; done += batchSize) {
      const cases = Array.from({ length: Math.min(batchSize, count - done) }, () => ({
        expression: expression(),
        texts: Array.from({ length: textsOfEach }, text),
      })).filter((one) => !/^\/.*\/i?$/s.test(one.expression));
      expect(await differences(cases)).toEqual([]);
    }
  },
);

test('hard expressions match hard texts as RE2 has it', async () => {
  const cases = hardExpressions.map((expression) => ({ expression, texts: hardTexts }));
  expect(await differences(cases)).toEqual([]);
});
