import { invalid } from '../errors';
import { fromFailure, toFailure } from './status';

test('an error goes through the wire as it is, and one with more details than a header may have says how many it left out', () => {
  const [few, many] = [3, 2_000].map((count) =>
    invalid('no', Object.fromEntries(Array.from({ length: count }, (_, at) => [`data[${at}].title`, ['is missing']]))),
  );
  expect(fromFailure(toFailure(few!))).toMatchObject({ code: few!.code, reason: few!.reason, details: few!.details });
  const failure = toFailure(many!);
  expect(failure.details.length).toBeLessThanOrEqual(6_000);
  const { '…': left, ...kept } = fromFailure(failure).details;
  const names = Object.keys(kept);
  expect(names).toEqual(Object.keys(many!.details).slice(0, names.length));
  expect(names.length).toBeGreaterThan(100);
  expect(left).toEqual([`and ${2_000 - names.length} more`]);
});
