/** The status, body and headers that a handler answers with. */
export interface Answer {
  status: number;
  body: Buffer | undefined;
  headers: Record<string, string>;
  /**
   * True for an answer that holds a secret beside text of the request. It is never compressed: its size would reveal
   * how much the two have in common (BREACH).
   */
  isSecret?: boolean;
}

/** An answer with a body. */
export interface FullAnswer extends Answer {
  body: Buffer;
}

/** JSON text that goes into an answer as it is, so that no number in it is rounded. */
export class JsonText {
  constructor(readonly text: string) {}
}

/** JSON text from a service, or null where it has none. */
export function jsonText(text: string | Buffer): JsonText | null {
  return text.length === 0 ? null : new JsonText(text.toString());
}

const jsonType = 'application/json; charset=utf-8';

export function json(status: number, value: unknown, headers: Record<string, string> = {}): FullAnswer {
  return jsonBytes(status, Buffer.from(stringify(value)), headers);
}

/** 201, with the path of the resource that was created. */
export function created(location: string, value: unknown, headers: Record<string, string> = {}): Answer {
  return json(201, value, { Location: location, ...headers });
}

/** 202, with the path of the task that the ticket stands for. */
export function accepted(ticketId: string, value: unknown, headers: Record<string, string> = {}): Answer {
  return json(202, value, { ...taskLocation(ticketId), ...headers });
}

export const taskLocation = (ticketId: string): Record<string, string> => ({ Location: `/api/tasks/${ticketId}` });

/** A whole answer that a service has rendered. */
export function jsonBytes(status: number, body: Buffer, headers: Record<string, string> = {}): FullAnswer {
  return { status, body, headers: { 'Content-Type': jsonType, ...headers } };
}

/** Like JSON.stringify, with JsonText spliced in. */
export function stringify(value: unknown): string {
  if (value instanceof JsonText) return value.text;
  if (Array.isArray(value)) return `[${value.map((element) => stringify(element ?? null)).join(',')}]`;
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).filter(([, member]) => member !== undefined);
    return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${stringify(member)}`).join(',')}}`;
  }
  return JSON.stringify(value);
}
