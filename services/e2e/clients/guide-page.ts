import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { operatorKey, type Granary } from '../support/granary';
import { repository, runProgram, withFolder } from './generated';

interface Block {
  language: string;
  text: string;
}

/** The first block of a page, with the variables of the others. Pages of docs/guide share that of their list. */
const settings = /^(export )?URL=.*\n(APP=demo\nAPP_KEY=app_…|(export )?OPERATOR_KEY=op_…\n$)/;

export const readPage = (name: string): Promise<string> => readFile(join(repository, 'docs', name), 'utf8');

export const blocksOf = (page: string): Block[] =>
  [...page.matchAll(/^```(\w+)\n([^]*?)^```$/gm)].map(([, language, text]) => ({ language: language!, text: text! }));

/**
 * Has each command note its status and its arguments in a line, and each block leave the body of its last answer. A
 * stream that `--max-time` ends (28) has an answer, too.
 */
const prelude = `
set -eu
curl() {
  body=$(mktemp ./body.XXXXXX)
  status=$(command curl -sS -o "$body" -w '%{http_code}' "$@") || [ $? -eq 28 ]
  printf '%s %s\\n' "$status" "$(printf '%s' "$*" | tr '\\n' ' ')" >> statuses
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

/** The answers to the commands of a page. */
export interface PageRun {
  /** The status of each request, and its arguments. */
  statuses: string[];
  /** How many answers the page shows. */
  shown: number;
  /** The text that its commands and programs printed. */
  output: string;
}

/** The things that the commands of a page need beside the service. */
export interface PageTools {
  /** The Python of its program. */
  python?: string;
  /** The folder in which they run. By default it is an empty one, which is removed afterwards. */
  folder?: string;
}

/**
 * Runs the commands of a page of docs/, whose first block names its variables, and compares the answers that it shows.
 * Its program in Python is run where it stands, with the arguments that the text before it gives.
 */
export async function runPage(
  { url }: Pick<Granary, 'url'>,
  name: string,
  key: string,
  { python = 'python3', folder: ownFolder }: PageTools = {},
): Promise<PageRun> {
  const page = await readPage(name);
  const languages = ['sh', 'json', 'python'];
  const blocks = blocksOf(page).filter(({ language }) => languages.includes(language));
  if (!name.startsWith('guide/')) expect(blocks.shift()?.text).toMatch(settings);
  const [, file = '', args = ''] = /`python (\w+\.py) ([^`]+)`/.exec(page) ?? [];
  const commandsOf = { sh: (text: string) => text, python: () => `"$PYTHON" -B ${file} ${args}\n` };
  const commands = blocks.map(({ language, text }, at) =>
    language === 'json' ? '' : `${commandsOf[language as 'sh' | 'python'](text)}\ncp last answer.${at}\n`,
  );
  const shown = blocks.flatMap(({ language, text }, at) => (language === 'json' ? [{ at, printed: text }] : []));
  const run = async (folder: string): Promise<PageRun> => {
    const script = [prelude, ...commands].join('\n');
    for (const { language, text } of blocks) if (language === 'python') await writeFile(join(folder, file), text);
    const output = await runProgram('/bin/sh', ['-c', script], {
      cwd: folder,
      env: { URL: url, APP: 'demo', APP_KEY: key, OPERATOR_KEY: operatorKey, PYTHON: python },
    });
    const statuses = (await readFile(join(folder, 'statuses'), 'utf8')).trim().split('\n');
    for (const { at, printed } of shown) {
      const answer = await readFile(join(folder, `answer.${at - 1}`), 'utf8');
      expectPrinted(JSON.parse(answer), JSON.parse(printed));
    }
    return { statuses, shown: shown.length, output };
  };
  return ownFolder === undefined ? withFolder(run) : run(ownFolder);
}
