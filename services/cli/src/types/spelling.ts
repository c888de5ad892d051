/** A name that TypeScript takes without quotes; reserved words are names of members, too. */
const identifier = /^[A-Za-z_$][A-Za-z0-9_$]*$/;

/** Characters that would be invisible, or change how the text around them is shown. */
const unseen = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;
/** The same without those that join letters and pictures. */
const unseenInProse = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu;

const escaped = (text: string): string =>
  [...text]
    .map((character) =>
      unitsOf(character)
        .map((unit) => `\\u${unit}`)
        .join(''),
    )
    .join('');

const unitsOf = (character: string): string[] =>
  character.split('').map((unit) => unit.charCodeAt(0).toString(16).padStart(4, '0'));

/** A text as a literal, in the quotes that need fewer escapes. */
export function textLiteral(text: string): string {
  const inside = JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"').replace(unseen, escaped);
  const isSingle = text.split("'").length <= text.split('"').length;
  return isSingle ? `'${inside.replaceAll("'", "\\'")}'` : `"${inside.replaceAll('"', '\\"')}"`;
}

/** The name of a member of a type. */
export const memberName = (name: string): string => (identifier.test(name) ? name : textLiteral(name));

/**
 * A documentation comment, as lines; none for an empty text. Nothing in the text ends the comment, and no line begins
 * with what a compiler or an editor would take for a tag.
 */
export function docComment(text: string): string[] {
  const lines = text
    .split(/\r\n|[\n\r\u2028\u2029]/)
    .map((line) =>
      line
        .replace(unseenInProse, ' ')
        .replaceAll('*/', '*\\/')
        .replace(/^([\s*/]*)@/, '$1\\@')
        .trim(),
    )
    .join('\n')
    .trim()
    .split('\n');
  if (lines.length === 1) return lines[0] === '' ? [] : [`/** ${lines[0]} */`];
  return ['/**', ...lines.map((line) => ` * ${line}`.trimEnd()), ' */'];
}

/** A name as TypeScript names types: `PerYear` of `per_year`. */
export function typeName(name: string): string {
  const words = name.split(/[^A-Za-z0-9]+/).filter((word) => word !== '');
  const joined = words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('');
  return /^[A-Z]/.test(joined) ? joined : `_${joined}`;
}
