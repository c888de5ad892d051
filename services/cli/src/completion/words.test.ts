import { Argument, Command, Option } from 'commander';
import { continuationOf } from './words.ts';

function program(): Command {
  const root = new Command('granary')
    .option('--app <id>')
    .option('--profile <name>')
    .option('--json')
    .option('--url <url>');
  const collections = root.command('collections');
  collections.command('list');
  collections.command('show').argument('<collection>').option('--force');
  root.command('completion').addArgument(new Argument('<shell>').choices(['bash', 'zsh']));
  root.command('hidden', { hidden: true });
  root
    .command('import')
    .argument('<collection>')
    .argument('<file>')
    .addOption(new Option('--mode <mode>').choices(['insert', 'upsert']));
  root.command('rm').argument('<collection>').argument('<ids...>');
  return root;
}

const afterWords = (...words: string[]) => {
  const { words: candidates, names } = continuationOf(program(), words);
  return names ? `<${names}>` : candidates;
};

test('commands', () => {
  expect(afterWords('')).toEqual(['collections', 'completion', 'import', 'rm', 'help']);
  expect(afterWords('co')).toEqual(['collections', 'completion']);
  expect(afterWords('collections', 's')).toEqual(['show']);
});

test('options, also those of all commands', () => {
  expect(afterWords('collections', 'show', '--')).toEqual([
    '--force',
    '--app',
    '--profile',
    '--json',
    '--url',
    '--help',
  ]);
  expect(afterWords('import', '--mo')).toEqual(['--mode']);
});

test('values of options', () => {
  expect(afterWords('import', '--mode', 'u')).toEqual(['upsert']);
  expect(afterWords('--profile', '')).toBe('<profile>');
  expect(afterWords('--app', '')).toBe('<app>');
});

test('names of things and choices', () => {
  expect(afterWords('collections', 'show', 'b')).toBe('<collection>');
  expect(afterWords('--json', '--app', 'list', 'collections', 'show', '')).toBe('<collection>');
  expect(afterWords('completion', '')).toEqual(['bash', 'zsh']);
});

test('nothing where a file, an id or no more is expected', () => {
  expect(afterWords('import', 'books', '')).toEqual([]);
  expect(afterWords('rm', 'books', 'b1', '')).toEqual([]);
  expect(afterWords('collections', 'show', 'books', '')).toEqual([]);
});

test('the line says which service it is about', () => {
  const line = ['--url=http://127.0.0.1:1', 'collections', '--app', 'shop', 'show', ''];
  expect(continuationOf(program(), line).options).toEqual({ url: 'http://127.0.0.1:1', app: 'shop' });
});
