/** HTML that is inserted without escaping. */
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

/** A template of HTML that escapes every value except markup. */
export function markup(strings: TemplateStringsArray, ...parts: readonly Part[]): Markup {
  return new Markup(String.raw({ raw: strings }, ...parts.map(textOf)));
}

/** Joins markup with a separator. */
export function joined(parts: readonly Markup[], between: string): Markup[] {
  return parts.flatMap((part, index) => (index === 0 ? [part] : [markup`${between}`, part]));
}

/** Text with code between backticks. */
export function prose(text: string): Markup[] {
  return text
    .split(/`([^`]+)`/)
    .map((part, index) => (index % 2 === 0 ? markup`${part}` : markup`<code>${part}</code>`));
}

/** A table; the kind selects its layout on narrow screens. */
export function table(
  kind: 'fields' | 'responses',
  headings: readonly string[],
  rows: ReadonlyArray<readonly Part[]>,
): Markup {
  const head = headings.map((heading) => markup`<th>${heading}</th>`);
  const body = rows.map((row) => markup`<tr>${row.map((cell) => markup`<td>${cell}</td>`)}</tr>`);
  return markup`<table class="${kind}"><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table>`;
}
