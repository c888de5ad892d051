/**
 * Returns Jest's `describe`, or `describe.skip` where `why` says why the suites cannot run here. Then it prints what is
 * not tested, unless REQUIRE_STACK=1 demands it: the suites run in that case, and fail.
 */
export function describeUnless<D extends { skip: unknown }>(
  describe: D,
  why: string | undefined,
  notTested: string,
): D | D['skip'] {
  if (why === undefined || process.env['REQUIRE_STACK'] === '1') return describe;
  process.stderr.write(`\n*** SKIPPED: ${notTested}: ${why} ***\n\n`);
  return describe.skip;
}
