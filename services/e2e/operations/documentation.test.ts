import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

const root = path.join(__dirname, '../../..');
const tracked = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
  cwd: root,
  encoding: 'utf8',
}).split('\n');
const pages = tracked.filter((file) => file.endsWith('.md') && existsSync(path.join(root, file)));
const sources = tracked.filter((file) => /\.(ts|mjs|js)$/.test(file) && existsSync(path.join(root, file)));

const read = (file: string): string => readFileSync(path.join(root, file), 'utf8');
/** `services/data/src/commit/head.ts` as pages name it: `/data/commit/head.ts`, or the end of that. */
const inPackage = (file: string): string => `/${file}`.replace('/src/', '/');
const withoutCode = (markdown: string): string => markdown.replace(/^```[^]*?^```/gm, '');

/** The anchors that GitHub makes of the headings of a page. */
function anchorsOf(file: string): string[] {
  return [...withoutCode(read(file)).matchAll(/^#{1,6} (.*)$/gm)].map(([, heading]) =>
    heading!
      .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_\- ]/gu, '')
      .replaceAll(' ', '-'),
  );
}

test('every link between pages leads to a file, and to a heading if it has a fragment', () => {
  const broken = pages.flatMap((page) =>
    [...withoutCode(read(page)).matchAll(/\]\(([^)\s]+)\)/g)]
      .map(([, target]) => target!)
      .filter((target) => !/^[a-z]+:/.test(target))
      .filter((target) => {
        const [file, anchor] = target.split('#');
        const linked = file === '' ? page : path.posix.join(path.posix.dirname(page), file!);
        if (!existsSync(path.join(root, linked))) return true;
        return anchor !== undefined && linked.endsWith('.md') && !anchorsOf(linked).includes(anchor);
      })
      .map((target) => `${page}: ${target}`),
  );
  expect(broken).toEqual([]);
});

test('README and docs/performance.md quote the same run of the benchmark', () => {
  const quoted = ['README.md', 'docs/performance.md'].map(
    (page) => /<!-- bench: table -->\n(.*)<!-- end of bench -->/s.exec(read(page))?.[1],
  );
  expect(quoted[0]).toMatch(/\| insert, documents\/s/);
  expect(quoted[1]).toBe(quoted[0]);
});

test('every source file named on a page exists', () => {
  const missing = pages
    // What was is named as it was.
    .filter((page) => page !== 'CHANGELOG.md')
    .flatMap((page) =>
      [...withoutCode(read(page)).matchAll(/`([\w./-]+\.(?:ts|mjs))`/g)]
        .map(([, name]) => name!)
        .filter((name) => !sources.some((source) => inPackage(source).endsWith(inPackage(name))))
        .map((name) => `${page}: ${name}`),
    );
  expect(missing).toEqual([]);
});
