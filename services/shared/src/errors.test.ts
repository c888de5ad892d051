import { invalid } from './errors';

test('a sentence about what is wrong names the first detail, once and of bounded length', () => {
  const messageOf = (message: string, details?: Record<string, string[]>) => invalid(message, details).message;
  expect(messageOf('The body is not valid', { name: ['is required', 'more'], age: ['is required'] })).toBe(
    'The body is not valid: name is required',
  );
  expect(messageOf('The request is not valid', { 'data[0]': ['A document must be a JSON object'] })).toBe(
    'The request is not valid: data[0]: A document must be a JSON object',
  );
  for (const whole of ['age must be a number', 'There is no such change']) {
    expect(messageOf(whole, { age: ['must be a number'] }).split('must be a number')).toHaveLength(2);
    expect(messageOf(whole)).toBe(whole);
  }
  expect(messageOf('No', { ['x'.repeat(10_000)]: ['y'.repeat(10_000)] }).length).toBeLessThan(1_000);
});
