import { isOnStackNow, stackTurn, turnOf } from './stack-turn';

const { GRANARY_TEST_STACK_TURN: before } = process.env;
afterAll(() => {
  if (before === undefined) delete process.env['GRANARY_TEST_STACK_TURN'];
  else process.env['GRANARY_TEST_STACK_TURN'] = before;
});

test('each suite without a reason is on the stack in one of five days in a row, those with one always or never', () => {
  const reasons = { always: { a: 'It is about Kafka.' }, never: { n: 'It starts services itself.' } };
  const others = Array.from({ length: 50 }, (_, n) => `s${n}`);
  const suites = ['a', 'n', ...others];
  const days = ['2026-11-28', '2026-11-29', '2026-11-30', '2026-12-01', '2026-12-02'].map((day) =>
    suites.filter((suite) => isOnStackNow(suite, reasons, turnOf(`${day}.0123456789`))),
  );
  const counts = suites.map((suite) => days.filter((day) => day.includes(suite)).length);
  expect(counts).toEqual([5, 0, ...others.map(() => 1)]);
  expect(days.every((day) => day.length > 1)).toBe(true);
  expect(suites.filter((suite) => isOnStackNow(suite, reasons, 'all'))).toEqual(['a', ...others]);
});

test('the setting decides before the day, and is refused when it is no turn', () => {
  process.env['GRANARY_TEST_STACK_TURN'] = '3';
  expect(stackTurn()).toBe(3);
  process.env['GRANARY_TEST_STACK_TURN'] = '5';
  expect(stackTurn).toThrow('GRANARY_TEST_STACK_TURN is all, or 0 to 4');
});
