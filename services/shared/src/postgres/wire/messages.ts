/** Types of the messages of Postgres's protocol, their first bytes. */
const code = (letter: string): number => letter.charCodeAt(0);

export const frontend = {
  bind: code('B'),
  close: code('C'),
  copyData: code('d'),
  copyDone: code('c'),
  execute: code('E'),
  parse: code('P'),
  sync: code('S'),
};

export const backend = {
  bindComplete: code('2'),
  closeComplete: code('3'),
  commandComplete: code('C'),
  dataRow: code('D'),
  emptyQuery: code('I'),
  errorResponse: code('E'),
  notice: code('N'),
  notification: code('A'),
  parameterStatus: code('S'),
  parseComplete: code('1'),
  readyForQuery: code('Z'),
};

/** The type and the length of a message. */
export const headerBytes = 5;
