import { mkdir, mkdtemp, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { borrowGranary, newApp, type Granary } from '../support/granary';
import { CliPackage, environmentOf } from './cli-package';
import { repository } from './generated';

interface Block {
  commands: string;
  /** What they print, with `…` for what is another time something else; undefined where the page does not show it. */
  output: string | undefined;
}

let granary: Granary;
let cli: CliPackage;
let blocks: Block[];
beforeAll(async () => {
  granary = await borrowGranary('direct');
  cli = await CliPackage.install();
  const page = await readFile(join(repository, 'docs/cli.md'), 'utf8');
  blocks = [...page.matchAll(/^```sh\n([^]*?)^```\n(?:\n```(?:text|json)\n([^]*?)^```\n)?/gm)].map(
    ([, commands, output]) => ({
      commands: commands!,
      output,
    }),
  );
});
afterAll(async () => {
  await cli?.remove();
  await granary?.stop();
});

/** An empty folder, where `npx granary` finds the package, and an app of its own. */
async function newPlace() {
  const folder = join(cli.folder, 'places');
  await mkdir(folder, { recursive: true });
  return { cwd: await mkdtemp(join(folder, 'place-')), env: environmentOf(granary, await newApp(granary)) };
}

/** The page names an app that its reader has; the commands have that in their environment. */
const isSetting = ({ commands }: Block): boolean => commands.startsWith('export ');

const patternOf = (output: string): RegExp =>
  new RegExp(
    `^${output
      .split('…')
      .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
      .join('.*')}$`,
    's',
  );

test('the page has commands and what they print', () => {
  expect(blocks.length).toBeGreaterThan(10);
  expect(blocks.filter(({ output }) => output !== undefined).length).toBeGreaterThan(2);
});

test('each command of the page does in a pipe what it says', async () => {
  const place = await newPlace();
  for (const block of blocks.filter((each) => !isSetting(each))) {
    const { code, stdout, stderr } = await cli.runShell(block.commands, place);
    expect({ commands: block.commands, code, stderr: code === 0 ? '' : stderr }).toEqual({
      commands: block.commands,
      code: 0,
      stderr: '',
    });
    if (block.output !== undefined) expect(stdout).toMatch(patternOf(block.output));
    expect(stdout).not.toContain('\u001b');
  }
});

test('each command of the page works in a terminal', async () => {
  const place = await newPlace();
  for (const block of blocks.filter((each) => !isSetting(each))) {
    const { code, stdout } = await cli.runShell(block.commands, { ...place, isInTerminal: true });
    expect({ commands: block.commands, code, shown: code === 0 ? '' : stdout }).toEqual({
      commands: block.commands,
      code: 0,
      shown: '',
    });
  }
});
