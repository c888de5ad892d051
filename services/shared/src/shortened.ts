/** The beginning of a text that has more than `lengthMax` characters, without half of a surrogate pair. */
export const shortened = (text: string, lengthMax: number): string =>
  text.length <= lengthMax ? text : `${text.slice(0, lengthMax - 1).replace(/[\ud800-\udbff]$/, '')}…`;
