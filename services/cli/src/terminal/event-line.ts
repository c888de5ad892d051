import type { ChangeEvent } from '@granary/client';
import { jsonText } from '../exact-json.ts';
import { shortened } from './table.ts';
import { visible, type Style, type Terminal } from './terminal.ts';

const signOf = (event: Exclude<ChangeEvent<unknown>, { event: 'reset' }>): ['+' | '~' | '-', Style] => {
  if (event.event === 'remove') return ['-', 'red'];
  return event.version === 1 ? ['+', 'green'] : ['~', 'yellow'];
};

/**
 * A change as a line that is not wider than the terminal: when, `+` for a document that is new, `~` for another version
 * or a row, `-` for what is not there any more, and what it is about.
 */
export function eventLine(terminal: Terminal, event: ChangeEvent<unknown>): string {
  if (event.event === 'reset') return terminal.styled('red', visible(`reset ${event.message}`));
  // Swedes write the date as ISO 8601 does, and this is the time of the place where the terminal is.
  const when = event.at === undefined ? '' : `${new Date(event.at).toLocaleString('sv-SE')} `;
  const [sign, style] = signOf(event);
  const head = `${when}#${event.height} ${sign} `;
  const name = `${event.collection ?? event.view ?? ''}/${event.id ?? ('id_sha256' in event ? event.id_sha256 : undefined) ?? ''}`;
  const text = shortened(visible(`${name} ${detailOf(event)}`).replace(/[\t\n]+/g, ' '), terminal.width - head.length);
  return `${terminal.styled('dim', head.slice(0, -2))}${terminal.styled(style, `${sign} `)}${text}`.trimEnd();
}

function detailOf(event: Exclude<ChangeEvent<unknown>, { event: 'reset' }>): string {
  if (event.event === 'remove') return event.reason;
  if (event.document === undefined) return event.version === undefined ? '' : `version ${event.version}`;
  return event.document === null ? 'its text is not stored any more' : jsonText(event.document);
}
