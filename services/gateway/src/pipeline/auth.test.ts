import { FairScheduler } from '@granary/shared/concurrency/fair-scheduler';
import { newCall } from '@granary/shared/rpc/types';
import { unavailable } from '@granary/shared/errors';
import type { VerifyKeyResponse } from '@granary/shared/gen/granary/data/v1/VerifyKeyResponse';
import { limitMs } from '@granary/testing/speed';
import { hasPermission, type AppCaller } from './access';
import { hashKey, isOperator, presentedKey } from './auth';
import { KeyLookup } from './key-lookup';

const call = newCall('test', limitMs(10_000));
const known: VerifyKeyResponse = {
  known: true,
  name: 'default',
  keyId: 'k',
  appId: 'a',
  appNumber: '1',
  permissions: ['Read'],
};
const unknown: VerifyKeyResponse = { known: false, name: '', keyId: '', appId: '', appNumber: '0', permissions: [] };
const refused = expect.objectContaining({ code: 'UNAUTHENTICATED' }) as Error;

const address = '192.0.2.1';
const unknownLookups = () =>
  new FairScheduler({
    concurrency: 2,
    queueMax: 1_000,
    queueMaxPerFlow: 1_000,
    timeoutMs: 60_000,
    refusal: () => unavailable('full'),
  });

/** A data service that knows the given keys, a clock, and how often the service was asked. */
function fixture(valid: Set<string>) {
  const state = { nowMs: 0, asked: 0, isDown: false };
  const hashes = () => new Set([...valid].map((key) => hashKey(key).toString('hex')));
  const verifyKey = ({ hash }: { hash: Buffer }) => {
    state.asked += 1;
    if (state.isDown) return Promise.reject(unavailable('down'));
    return Promise.resolve(hashes().has(hash.toString('hex')) ? known : unknown);
  };
  return { state, keys: new KeyLookup({ verifyKey }, unknownLookups(), () => state.nowMs) };
}

test('a revoked key is refused 800 ms after it was last looked up, and not asked for before', async () => {
  const valid = new Set(['app_1']);
  const { state, keys } = fixture(valid);
  expect(await keys.find('app_1', call, address)).toMatchObject({ appId: 'a', keyId: 'k' });
  valid.clear();
  state.nowMs = 799;
  expect(await keys.find('app_1', call, address)).toBeDefined();
  expect(state.asked).toBe(1);
  state.nowMs = 800;
  expect(await keys.find('app_1', call, address)).toBeUndefined();
});

test('the age of an answer counts from the sending of its question', async () => {
  let answer = (_: VerifyKeyResponse) => {};
  let asked = 0;
  let nowMs = 0;
  const verifyKey = () => {
    asked += 1;
    return new Promise<VerifyKeyResponse>((resolve) => (answer = resolve));
  };
  const keys = new KeyLookup({ verifyKey }, unknownLookups(), () => nowMs);
  const first = keys.find('app_1', call, address);
  nowMs = 900;
  answer(known);
  await first;
  void keys.find('app_1', call, address);
  expect(asked).toBe(2);
});

test('parallel requests with one key ask once', async () => {
  const { state, keys } = fixture(new Set(['app_1']));
  await Promise.all(Array.from({ length: 50 }, () => keys.find('app_1', call, address)));
  expect(state.asked).toBe(1);
});

test('a flood of invented keys does not push out one that exists', async () => {
  const { state, keys } = fixture(new Set(['app_1']));
  await keys.find('app_1', call, address);
  for (let i = 0; i < 25_000; i += 1) await keys.find(`app_invented_${i}`, call, address);
  const before = state.asked;
  expect(await keys.find('app_1', call, address)).toBeDefined();
  expect(state.asked).toBe(before);
});

test('a failed look-up is not remembered', async () => {
  const { state, keys } = fixture(new Set(['app_1']));
  state.isDown = true;
  await expect(keys.find('app_1', call, address)).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  state.isDown = false;
  expect(await keys.find('app_1', call, address)).toBeDefined();
});

test('keys that exist are looked up anew beside any number of invented ones, of which few are looked up at once', async () => {
  let underWay = 0;
  let underWayMax = 0;
  let nowMs = 0;
  const answers: Array<() => void> = [];
  const hash = hashKey('app_1').toString('hex');
  const verifyKey = (request: { hash: Buffer }) => {
    if (request.hash.toString('hex') === hash) return Promise.resolve(known);
    underWayMax = Math.max(underWayMax, ++underWay);
    return new Promise<VerifyKeyResponse>((resolve) => {
      answers.push(() => {
        underWay -= 1;
        resolve(unknown);
      });
    });
  };
  const keys = new KeyLookup({ verifyKey }, unknownLookups(), () => nowMs);
  await keys.find('app_1', call, address);
  const invented = Array.from({ length: 500 }, (_, n) => keys.find(`app_invented_${n}`, call, address));
  nowMs = 1_000;
  expect(await keys.find('app_1', call, address)).toBeDefined();
  while (answers.length > 0) {
    answers.shift()!();
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(await Promise.all(invented)).toEqual(Array(500).fill(undefined));
  expect(underWayMax).toBe(2);
});

test('text that cannot be a key is not looked up', async () => {
  const { state, keys } = fixture(new Set());
  for (const text of ['', 'x', 'APP_1', `app_${'x'.repeat(300)}`])
    expect(await keys.find(text, call, address)).toBeUndefined();
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
