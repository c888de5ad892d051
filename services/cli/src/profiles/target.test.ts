import { UsageError } from '../failure.ts';
import type { Profiles } from './profile-file.ts';
import { targetOf } from './target.ts';

const work = { url: 'http://one.example', app: 'shop', appKey: 'app_shop', operatorKey: 'operator' };
const stored: Profiles = { current: 'work', profiles: { work } };

test('flags win over the environment, and that over the profile', () => {
  const env = { GRANARY_URL: 'http://two.example', GRANARY_APP: 'env', GRANARY_APP_KEY: 'app_env' };
  expect(targetOf({}, {}, stored)).toMatchObject(work);
  expect(targetOf({}, env, stored)).toMatchObject({ url: 'http://two.example', app: 'env', appKey: 'app_env' });
  expect(targetOf({ app: 'flag' }, env, stored)).toMatchObject({ app: 'flag', appKey: 'app_env' });
});

test('keys of a profile stay with its service and its app', () => {
  expect(targetOf({ app: 'other' }, {}, stored)).toMatchObject({ appKey: undefined, operatorKey: 'operator' });
  expect(targetOf({ url: 'http://two.example' }, {}, stored)).toMatchObject({
    appKey: undefined,
    operatorKey: undefined,
  });
});

test('a key that no header can carry is named without its text', () => {
  const error = () => targetOf({}, { GRANARY_OPERATOR_KEY: 'secret\nline' }, stored);
  expect(error).toThrow(UsageError);
  expect(error).toThrow(/^GRANARY_OPERATOR_KEY has characters that no key has/);
  const damaged: Profiles = { current: 'work', profiles: { work: { ...work, appKey: 'secret line' } } };
  expect(() => targetOf({}, {}, damaged)).toThrow(/^A key of the profile "work" has characters/);
});

test('two ways to pay are one too many', () => {
  const env = { GRANARY_AGENT_KEY: 'agent', GRANARY_USER_KEY: 'user' };
  expect(() => targetOf({}, env, stored)).toThrow('are two ways to pay');
});
