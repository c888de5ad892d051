import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { newApp, operatorKey, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { repository, runProgram, withFolder } from './generated';

let granary: Granary;
beforeAll(async () => {
  // Its own, since the pages name the app.
  granary = await startGranary('direct');
});
afterAll(() => granary.stop());

interface Block {
  language: string;
  text: string;
}

const blocksOf = (page: string): Block[] =>
  [...page.matchAll(/^```(\w+)\n([^]*?)^```$/gm)].map(([, language, text]) => ({ language: language!, text: text! }));

/** Has each command note its status, and each block leave the body of its last answer. */
const prelude = `
set -eu
curl() {
  body=$(mktemp ./body.XXXXXX)
  status=$(command curl -sS -o "$body" -w '%{http_code}' "$@")
  printf '%s %s\\n' "$status" "$*" >> statuses
  cp "$body" last
  cat "$body"
}
`;

/** What is printed is what was answered; \`…\` stands for what differs from time to time. */
function expectPrinted(actual: unknown, printed: unknown): void {
  const matcher = (value: unknown): unknown => {
    if (value === '…') return expect.any(String);
    if (Array.isArray(value)) return value.map(matcher);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, matcher(member)]));
  };
  expect(actual).toEqual(matcher(printed));
}

/** Runs the commands of a page, whose first block names its variables, and compares the answers that it shows. */
async function runPage(name: string, key: string): Promise<{ statuses: string[]; shown: number }> {
  const page = await readFile(join(repository, 'docs', name), 'utf8');
  const [settings, ...blocks] = blocksOf(page).filter(({ language }) => language === 'sh' || language === 'json');
  expect(settings?.text).toMatch(/^URL=.*\nAPP=demo\nAPP_KEY=app_…/);
  const commands = blocks.map(({ language, text }, at) => (language === 'sh' ? `${text}\ncp last answer.${at}\n` : ''));
  const shown = blocks.flatMap(({ language, text }, at) => (language === 'json' ? [{ at, printed: text }] : []));
  return withFolder(async (folder) => {
    const script = [prelude, ...commands].join('\n');
    await runProgram('/bin/sh', ['-c', script], {
      cwd: folder,
      env: { URL: granary.url, APP: 'demo', APP_KEY: key, OPERATOR_KEY: operatorKey },
    });
    const statuses = (await readFile(join(folder, 'statuses'), 'utf8')).trim().split('\n');
    for (const { at, printed } of shown) {
      const answer = await readFile(join(folder, `answer.${at - 1}`), 'utf8');
      expectPrinted(JSON.parse(answer), JSON.parse(printed));
    }
    return { statuses, shown: shown.length };
  });
}

test('the examples of docs/api.md, docs/payouts.md and docs/prices.md run in their order, and are answered as the pages show', async () => {
  const { key } = await newApp(granary, 'demo');
  const pages = {
    'payouts.md': { commands: 5, answers: 2, refused: [] },
    'api.md': { commands: 31, answers: 3, refused: [] },
    'prices.md': { commands: 13, answers: 1, refused: ['402', '402'] },
  };
  for (const [page, { commands, answers, refused }] of Object.entries(pages)) {
    const { statuses, shown } = await runPage(page, key);
    expect(statuses.length).toBeGreaterThanOrEqual(commands);
    expect(statuses.map((line) => line.slice(0, 3)).filter((status) => !status.startsWith('2'))).toEqual(refused);
    expect(shown).toBeGreaterThanOrEqual(answers);
  }
});
