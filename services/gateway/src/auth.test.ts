import { newCall } from '@granary/shared/grpc/types';
import { unavailable } from '@granary/shared/errors';
import type { VerifyKeyResponse } from '@granary/shared/gen/granary/data/v1/VerifyKeyResponse';
import { scaledMs } from '@granary/shared/testing/speed';
import { hashKey, hasPermission, isOperator, keyLookup, presentedKey, type AppCaller } from './auth';

const call = newCall('test', scaledMs(10_000));
const known: VerifyKeyResponse = { known: true, keyId: 'k', appId: 'a', appNumber: '1', permissions: ['Read'] };
const unknown: VerifyKeyResponse = { known: false, keyId: '', appId: '', appNumber: '0', permissions: [] };
const refused = expect.objectContaining({ code: 'UNAUTHENTICATED' }) as Error;

/** A data service that knows the given keys, a clock, and how often the service was asked. */
function fixture(valid: Set<string>) {
  const state = { nowMs: 0, asked: 0, isDown: false };
  const hashes = () => new Set([...valid].map((key) => hashKey(key).toString('hex')));
  const verifyKey = ({ hash }: { hash: Buffer }) => {
    state.asked += 1;
    if (state.isDown) return Promise.reject(unavailable('down'));
    return Promise.resolve(hashes().has(hash.toString('hex')) ? known : unknown);
  };
  return { state, keys: keyLookup({ verifyKey }, () => state.nowMs) };
}

test('a revoked key is refused 800 ms after it was last looked up, and not asked for before', async () => {
  const valid = new Set(['app_1']);
  const { state, keys } = fixture(valid);
  expect(await keys.find('app_1', call)).toMatchObject({ appId: 'a', keyId: 'k' });
  valid.clear();
  state.nowMs = 799;
  expect(await keys.find('app_1', call)).toBeDefined();
  expect(state.asked).toBe(1);
  state.nowMs = 800;
  expect(await keys.find('app_1', call)).toBeUndefined();
});

test('the age of an answer counts from the sending of its question', async () => {
  let answer = (_: VerifyKeyResponse) => {};
  let asked = 0;
  let nowMs = 0;
  const verifyKey = () => {
    asked += 1;
    return new Promise<VerifyKeyResponse>((resolve) => (answer = resolve));
  };
  const keys = keyLookup({ verifyKey }, () => nowMs);
  const first = keys.find('app_1', call);
  nowMs = 900;
  answer(known);
  await first;
  void keys.find('app_1', call);
  expect(asked).toBe(2);
});

test('parallel requests with one key ask once', async () => {
  const { state, keys } = fixture(new Set(['app_1']));
  await Promise.all(Array.from({ length: 50 }, () => keys.find('app_1', call)));
  expect(state.asked).toBe(1);
});

test('a flood of invented keys does not push out one that exists', async () => {
  const { state, keys } = fixture(new Set(['app_1']));
  await keys.find('app_1', call);
  for (let i = 0; i < 25_000; i += 1) await keys.find(`app_invented_${i}`, call);
  const before = state.asked;
  expect(await keys.find('app_1', call)).toBeDefined();
  expect(state.asked).toBe(before);
});

test('a failed look-up is not remembered', async () => {
  const { state, keys } = fixture(new Set(['app_1']));
  state.isDown = true;
  await expect(keys.find('app_1', call)).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  state.isDown = false;
  expect(await keys.find('app_1', call)).toBeDefined();
});

test('text that cannot be a key is not looked up', async () => {
  const { state, keys } = fixture(new Set());
  for (const text of ['', 'x', 'APP_1', `app_${'x'.repeat(300)}`]) expect(await keys.find(text, call)).toBeUndefined();
  expect(state.asked).toBe(0);
});

test('a key is taken from any of its headers, and several must agree', () => {
  expect(presentedKey({})).toBeUndefined();
  expect(presentedKey({ 'x-app-key': 'app_1' })).toBe('app_1');
  expect(presentedKey({ 'x-api-key': 'app_1' })).toBe('app_1');
  expect(presentedKey({ authorization: 'bearer app_1' })).toBe('app_1');
  expect(presentedKey({ authorization: 'Basic YTpi' })).toBeUndefined();
  expect(presentedKey({ authorization: 'Bearer app_1', 'x-app-key': 'app_1', 'x-api-key': 'app_1' })).toBe('app_1');
  expect(() => presentedKey({ authorization: 'Bearer app_1', 'x-app-key': 'app_2' })).toThrow(refused);
  expect(() => presentedKey({ 'x-api-key': 'app_1', 'x-app-key': 'app_2' })).toThrow(refused);
});

test("a wrong operator's key is an error, an absent one is not", () => {
  const hash = hashKey('the operator of this');
  expect(isOperator({}, hash)).toBe(false);
  expect(isOperator({ 'x-operator-key': 'the operator of this' }, hash)).toBe(true);
  expect(() => isOperator({ 'x-operator-key': 'the operator of that' }, hash)).toThrow(refused);
  expect(() => isOperator({ 'x-operator-key': '' }, hash)).toThrow(refused);
});

test('Admin includes Read and Write but not Pay; the others include nothing else', () => {
  const caller = (...permissions: string[]) => ({ permissions: new Set(permissions) }) as unknown as AppCaller;
  const may = (...given: string[]) =>
    (['Read', 'Write', 'Admin', 'Pay'] as const).filter((permission) => hasPermission(caller(...given), permission));
  expect(may('Admin')).toEqual(['Read', 'Write', 'Admin']);
  expect(may('Read')).toEqual(['Read']);
  expect(may('Write')).toEqual(['Write']);
  expect(may('Pay')).toEqual(['Pay']);
});
