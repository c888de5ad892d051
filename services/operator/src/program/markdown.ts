/** A table of Markdown, in columns of the same width as Prettier aligns them; the first row is its head. */
export function markdownTable(rows: readonly (readonly string[])[]): string {
  const lines = rows.map((row) => row.map((cell) => cell.replaceAll('|', '\\|')));
  const widths = lines[0]!.map((_, column) => Math.max(3, ...lines.map((line) => line[column]!.length)));
  const [head, ...body] = lines.map(
    (line) => `| ${line.map((cell, column) => cell.padEnd(widths[column]!)).join(' | ')} |`,
  );
  const rule = `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`;
  return [head, rule, ...body].join('\n');
}

/**
 * Replaces what stands on a page between the marks `<!-- kind: name -->` and `<!-- end of kind -->` by what `contentOf`
 * returns for each name.
 */
export function replaceMarked(page: string, kind: string, contentOf: (name: string) => string): string {
  const marks = new RegExp(`(<!-- ${kind}: ([\\w-]+) -->\\n).*?(<!-- end of ${kind} -->)`, 'gs');
  return page.replace(marks, (_, begin: string, name: string, end: string) => `${begin}\n${contentOf(name)}\n\n${end}`);
}
