/** HTML that may go into a page as it is. */
export class Markup {
  constructor(readonly text: string) {}
}

type Part = Markup | readonly Markup[] | string | undefined;

const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

function textOf(part: Part): string {
  if (part === undefined) return '';
  if (part instanceof Markup) return part.text;
  if (typeof part === 'string') return part.replace(/[&<>"']/g, (character) => entities[character]!);
  return part.map(textOf).join('');
}

/** A template of HTML in which every value is text and escaped, unless it is markup itself. */
export function markup(strings: TemplateStringsArray, ...parts: readonly Part[]): Markup {
  return new Markup(String.raw({ raw: strings }, ...parts.map(textOf)));
}

/** Markup with something between its parts. */
export function joined(parts: readonly Markup[], between: string): Markup[] {
  return parts.flatMap((part, at) => (at === 0 ? [part] : [markup`${between}`, part]));
}

/** Text in which what stands between backticks is code. */
export function prose(text: string): Markup[] {
  return text.split(/`([^`]+)`/).map((part, at) => (at % 2 === 0 ? markup`${part}` : markup`<code>${part}</code>`));
}

/** A table of three columns; the kind decides how it looks on a narrow screen. */
export function table(
  kind: 'fields' | 'responses',
  headings: readonly string[],
  rows: ReadonlyArray<readonly Part[]>,
): Markup {
  const head = headings.map((heading) => markup`<th>${heading}</th>`);
  const body = rows.map((row) => markup`<tr>${row.map((cell) => markup`<td>${cell}</td>`)}</tr>`);
  return markup`<table class="${kind}"><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table>`;
}
