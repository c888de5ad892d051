import { isConnectionError, sqlState } from '@granary/shared/postgres/errors';
import { MessageReader } from '../src/postgres/message-reader';
import type { Multiplexer, MultiplexerOptions } from '../src/postgres/multiplexer';
import { superuserUrl, testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { allTexts, openMultiplexer, readOne, run } from './support/multiplexer-fixture';
import { startWire, type Wire } from './support/multiplexer-wire';

let url: string;
const cleanUps: (() => Promise<unknown>)[] = [];

// One for each test: what a cut leaves asleep is not taken for what another has started.
beforeEach(async () => {
  url = (await testDatabase()).url;
});

afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

async function wired(
  options: Partial<MultiplexerOptions> = {},
): Promise<{ wire: Wire; multiplexer: Multiplexer; logged: string[] }> {
  const wire = await startWire(url);
  cleanUps.push(() => wire.stop());
  const opened = openMultiplexer(wire.url, options);
  cleanUps.push(() => opened.multiplexer.end());
  return { wire, ...opened };
}

const outcomes = (answers: Promise<unknown>[]) =>
  Promise.all(answers.map((answer) => answer.catch((error: unknown) => error)));

/** Every message that a reader delivers, as text. */
function messagesOf(chunks: Buffer[]): string[] {
  const found: string[] = [];
  const reader = new MessageReader((type, bytes, start, end) =>
    found.push(`${String.fromCharCode(type)} ${bytes.toString('hex', start, end)}`),
  );
  for (const chunk of chunks) reader.push(chunk);
  return found;
}

test('messages come out whole wherever the bytes of an answer are split', async () => {
  const { wire, multiplexer } = await wired({ size: 1 });
  await readOne(multiplexer, 'select 1');
  wire.record();
  await outcomes([
    multiplexer.read(`select i, null, repeat('ä', i) from generate_series(1, 12) i`, [], allTexts(3)),
    multiplexer.read('select 10 / (i - $1::int) from generate_series(1, 9) i', [3], allTexts(1)),
    readOne(multiplexer, `select set_config('application_name', 'multiplexer-split', false)`),
    readOne(multiplexer, 'select 1 where false'),
    readOne(multiplexer, ''),
  ]);
  const answer = Buffer.concat(wire.recorded);
  const whole = messagesOf([answer]);
  expect(whole.map((message) => message[0]).join('')).toMatch(/^12D{12}CZ12DDEZ12DCSZ12CZ12IZ$/);
  for (let at = 0; at <= answer.length; at++) {
    expect(messagesOf([answer.subarray(0, at), answer.subarray(at)])).toEqual(whole);
  }
  expect(messagesOf([...answer].map((byte) => Buffer.from([byte])))).toEqual(whole);
  for (const size of [2, 3, 4, 5, 6, 7, 64]) {
    const pieces = Math.ceil(answer.length / size);
    const chunks = Array.from({ length: pieces }, (_, at) => answer.subarray(at * size, (at + 1) * size));
    expect(messagesOf(chunks)).toEqual(whole);
  }
});

test('a large message is put together in one buffer of its size', () => {
  const message = Buffer.alloc(32 * 1024 * 1024, 'x');
  message[0] = 'D'.charCodeAt(0);
  message.writeInt32BE(message.length - 1, 1);
  const allocated: number[] = [];
  const allocUnsafe = Buffer.allocUnsafe.bind(Buffer);
  const spies = [
    jest.spyOn(Buffer, 'allocUnsafe').mockImplementation((size) => (allocated.push(size), allocUnsafe(size))),
    jest.spyOn(Buffer, 'concat'),
  ];
  try {
    let delivered = 0;
    const reader = new MessageReader((_type, bytes, start, end) => {
      delivered += end - start;
      expect(bytes.equals(message)).toBe(true);
    });
    for (let at = 0; at < message.length; at += 65_536) reader.push(message.subarray(at, at + 65_536));
    expect(delivered).toBe(message.length - 5);
    expect(allocated).toEqual([message.length]);
    expect(spies[1]).not.toHaveBeenCalled();
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
});

test('bytes that are no message are refused', () => {
  expect(() => messagesOf([Buffer.from([0x44, 0, 0, 0, 3])])).toThrow('Connection terminated');
  expect(() => messagesOf([Buffer.from([0x44, 0x7f, 0, 0, 0])])).toThrow('Connection terminated');
});

test('statements are answered when everything arrives byte by byte, from the first connection on', async () => {
  const { wire, multiplexer } = await wired({ size: 2 });
  wire.split();
  const answers = await outcomes(
    Array.from({ length: 40 }, (_, at) =>
      at % 4 === 3 ? readOne(multiplexer, 'select 1 / 0') : readOne(multiplexer, 'select $1::text', [`ä${at}`]),
    ),
  );
  answers.forEach((answer, at) => {
    if (at % 4 === 3) expect(sqlState(answer)).toBe('22012');
    else expect(answer).toBe(`ä${at}`);
  });
});

test('when a connection is cut, all in flight are told at once, and the next statement connects again', async () => {
  const { wire, multiplexer, logged } = await wired({ size: 1, window: 100 });
  const sleeping = outcomes(Array.from({ length: 100 }, () => readOne(multiplexer, 'select pg_sleep(9)')));
  await eventually(async () => (await asleep()) === 1 || undefined);
  wire.cut();
  const errors = await sleeping;
  expect(errors.filter(isConnectionError)).toHaveLength(100);
  expect(logged).toEqual(['a database connection broke']);
  expect(await readOne(multiplexer, 'select 1')).toBe('1');
});

test('what a lost connection has not been sent goes over the next one', async () => {
  const { wire, multiplexer } = await wired({ size: 1, window: 2 });
  const asked = [readOne(multiplexer, 'select pg_sleep(9)')];
  for (let at = 0; at < 4; at++) asked.push(readOne(multiplexer, 'select $1::text', [at]));
  const answers = outcomes(asked);
  await eventually(async () => (await asleep()) === 1 || undefined);
  wire.cut();
  const [first, second, ...others] = await answers;
  expect([first, second].filter(isConnectionError)).toHaveLength(2);
  expect(others).toEqual(['1', '2', '3']);
});

test('a connection that Postgres ends is replaced, with work in flight or without', async () => {
  const { multiplexer, logged } = await wired({ size: 1 });
  const sleeping = outcomes([readOne(multiplexer, 'select pg_sleep(9)'), readOne(multiplexer, 'select 2')]);
  await eventually(async () => (await asleep()) === 1 || undefined);
  await terminate();
  for (const error of await sleeping) {
    expect(sqlState(error)).toBe('57P01');
    expect(isConnectionError(error)).toBe(true);
  }
  expect(await readOne(multiplexer, 'select 3')).toBe('3');
  expect(logged).toEqual(['a database connection broke']);
  await terminate();
  await eventually(async () => logged.length === 2 || undefined);
  expect(logged[1]).toBe('an idle database connection broke');
  expect(await readOne(multiplexer, 'select 4')).toBe('4');
});

/** Long enough for a statement that only waits for a processor. */
const impatient = { statementTimeoutMs: limitMs(400), graceMs: limitMs(150) };

test('a connection that falls silent is dropped, another serves', async () => {
  const { wire, multiplexer } = await wired({ size: 1, ...impatient });
  expect(await readOne(multiplexer, 'select 1')).toBe('1');
  wire.freeze();
  const errors = await outcomes([readOne(multiplexer, 'select 2'), readOne(multiplexer, 'select 3')]);
  expect(errors.filter(isConnectionError)).toHaveLength(2);
  expect(await readOne(multiplexer, 'select 4')).toBe('4');
  expect(wire.connections()).toBe(2);
});

test('a connection that answers is kept, however long it has been idle or at work', async () => {
  const { wire, multiplexer } = await wired({ size: 1, ...impatient });
  const silenceMs = impatient.statementTimeoutMs + impatient.graceMs;
  // In all longer than it may be silent, each far less than a statement may take.
  const busy = Array.from({ length: 10 }, () =>
    readOne(multiplexer, `select 'x' || pg_sleep(${(0.2 * silenceMs) / 1_000})`),
  );
  expect(await Promise.all(busy)).toEqual(Array.from({ length: 10 }, () => 'x'));
  await new Promise((resolve) => setTimeout(resolve, 1.5 * silenceMs));
  expect(await readOne(multiplexer, 'select 1')).toBe('1');
  expect(wire.connections()).toBe(1);
});

test('nobody waits for a database that is not there, and when it is there again it serves', async () => {
  const { wire, multiplexer, logged } = await wired({ size: 2 });
  await wire.stop();
  for (const error of await outcomes(Array.from({ length: 20 }, () => readOne(multiplexer, 'select 1')))) {
    expect(error).toMatchObject({ code: 'ECONNREFUSED' });
  }
  expect(isConnectionError((await outcomes([readOne(multiplexer, 'select 1')]))[0])).toBe(true);
  const back = await startWire(url, Number(new URL(wire.url).port));
  cleanUps.push(() => back.stop());
  expect(await eventually(() => readOne(multiplexer, 'select 1').catch(() => undefined))).toBe('1');
  expect(logged).toEqual(['the multiplexer cannot connect to the database']);
});

test('a wrong password is told as what it is', async () => {
  const wrong = url.replace(/:[^:@]+@/, ':wrong@');
  const { multiplexer } = openMultiplexer(wrong);
  const [error] = await outcomes([readOne(multiplexer, 'select 1')]);
  expect(sqlState(error)).toBe('28P01');
  await multiplexer.end();
});

async function terminate(): Promise<void> {
  await run(superuserUrl(), `select pg_terminate_backend(pid) from pg_stat_activity where ${ofMultiplexers()}`);
}

/** How many connections of lanes run a pg_sleep. */
async function asleep(): Promise<number> {
  const [found] = await run(
    superuserUrl(),
    `select count(*)::int as count from pg_stat_activity where ${ofMultiplexers()} and wait_event = 'PgSleep'`,
  );
  return found!['count'] as number;
}

const ofMultiplexers = () => `application_name = 'multiplexer' and datname = '${new URL(url).pathname.slice(1)}'`;
