import { z } from 'zod';
import { fieldPath, validate } from './validate';

const schema = z.strictObject({
  name: z.string().max(3),
  count: z.int().min(1).max(9).optional(),
  data: z.array(z.strictObject({ address: z.strictObject({ city: z.string() }) })).optional(),
  kind: z.enum(['a', 'b']).nullish(),
});

const detailsOf = (value: unknown) => {
  try {
    validate(schema, value, 'body');
    return undefined;
  } catch (error) {
    return (error as { details: unknown }).details;
  }
};

test('paths read as in JavaScript', () => {
  expect(fieldPath(['data', 3, 'address', 'city'])).toBe('data[3].address.city');
});

test('a missing field and a wrong one have different texts', () => {
  expect(detailsOf({})).toEqual({ name: ['is required'] });
  expect(detailsOf({ name: null })).toEqual({ name: ['must be a string, not null'] });
  expect(detailsOf({ name: 'n', data: [{ address: { city: 1 } }, { address: {} }] })).toEqual({
    'data[0].address.city': ['must be a string, not a number'],
    'data[1].address.city': ['is required'],
  });
});

test('bounds and choices are named', () => {
  expect(detailsOf({ name: 'long', count: 10, kind: 'c' })).toEqual({
    name: ['must be at most 3 characters long'],
    count: ['must be at most 9'],
    kind: ['must be one of "a", "b"'],
  });
  expect(detailsOf({ name: 'n', count: 1.5 })).toEqual({ count: ['must be a whole number, not a fraction'] });
});

test('fields that nobody knows are refused by name, also those that every object has', () => {
  const value = JSON.parse(
    '{"name":"n","toString":1,"constructor":2,"data":[{"address":{"city":"c","x":1}}]}',
  ) as unknown;
  expect(detailsOf(value)).toEqual({
    'data[0].address.x': ['is not a known field'],
    toString: ['is not a known field'],
    constructor: ['is not a known field'],
  });
});

test('a body that is no object says so', () => {
  expect(detailsOf([])).toEqual({ body: ['must be an object, not an array'] });
  expect(detailsOf(null)).toEqual({ body: ['must be an object, not null'] });
});
