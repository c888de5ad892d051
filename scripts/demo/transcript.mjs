/** @import { Answer, Request } from './client.mjs' */

const shownCharacters = 160;
const barWidth = 30;

/** @param {string} text */
const write = (text) => process.stdout.write(text);
const say = (line = '') => write(`${line}\n`);

let steps = 0;

/** @param {string} text */
export function title(text) {
  say(`${steps === 0 ? '' : '\n'}${++steps}. ${text}\n`);
}

/** @param {string} text */
export const note = (text) => say(`   ${text}`);

/**
 * A request as a shell command: the key shortened, a long body truncated.
 * @param {string} url @param {Request & { key: string }} request
 */
export function showRequest(url, { method, path, headers, body, form, isPublic, key }) {
  const quoted = (/** @type {string} */ text) => `'${text}'`;
  const parts = [
    'curl',
    ...(method === 'GET' ? [] : [`-X ${method}`]),
    /[?&$=]/.test(path) ? quoted(url + path) : url + path,
    ...(isPublic ? [] : [`-H ${quoted(`X-App-Key: ${key.slice(0, 8)}…`)}`]),
    ...Object.entries(headers ?? {}).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
    ...(body === undefined ? [] : [`-H 'Content-Type: application/json'`, `-d ${quoted(body)}`]),
    ...Object.entries(form ?? {}).map(([name, value]) => `-F ${quoted(`${name}=${value}`)}`),
  ];
  say(`   $ ${parts.join(' ')}`);
}

/** Status, time and a few lines of an answer. @param {number} status @param {number} ms @param {string[]} lines */
export function showAnswer(status, ms, lines) {
  say(`   ${status} in ${ms.toFixed(1)} ms`);
  for (const line of lines) say(`     ${trimmed(line)}`);
}

/**
 * The records of a page, one per line, then the rest of the answer.
 * @param {{ records: object[] }} page
 */
export function pageLines({ records, ...rest }, shown = 5) {
  const more = records.length > shown ? [`… ${records.length - shown} more`] : [];
  return [...records.slice(0, shown).map((record) => JSON.stringify(record)), ...more, JSON.stringify(rest)];
}

/**
 * Selects the named members of an answer as lines, and whether there are others.
 * @param {string[]} names
 * @returns {(answer: Answer) => string[]}
 */
export function pick(...names) {
  return ({ json }) => {
    const picked = names.filter((name) => name in json);
    const text = JSON.stringify(Object.fromEntries(picked.map((name) => [name, json[name]])));
    return [picked.length < Object.keys(json).length ? `${text.slice(0, -1)},…}` : text];
  };
}

/** @param {string} text */
function trimmed(text) {
  const characters = [...text];
  return characters.length <= shownCharacters ? text : `${characters.slice(0, shownCharacters - 1).join('')}…`;
}

/** @param {number} number */
export const count = (number) => number.toLocaleString('en-US');

/**
 * Progress: a bar on a terminal, else a line for each quarter. `done` is called with growing numbers, finally `total`.
 * @param {number} total @param {string} noun
 * @returns {(done: number) => void}
 */
export function progress(total, noun) {
  let quarters = 0;
  return (done) => {
    const share = total === 0 ? 1 : done / total;
    if (process.stdout.isTTY) {
      const filled = Math.round(share * barWidth);
      write(`\r   ${'█'.repeat(filled)}${'░'.repeat(barWidth - filled)} ${count(done)} of ${count(total)} ${noun}`);
      if (done === total) say();
    } else if (Math.floor(share * 4) > quarters) {
      quarters = Math.floor(share * 4);
      note(`${count(done)} of ${count(total)} ${noun}`);
    }
  };
}
