import { type BadInput, bad, app, root, wrong } from './bad-input';

export function documentFields(): BadInput[] {
  const noObjects = [1, 'x', true, [1]];
  return [
    ...['[]', '"x"', '1', 'null', 'true'].flatMap((text) => [
      bad(`the body is ${text}`, 'POST /store', text, 400, 'VALIDATION_FAILED'),
      bad(`the body is ${text}`, 'POST /list', text, 400, 'INVALID_QUERY'),
      bad(`the body is ${text}`, `POST ${app}/collections`, text, 400, 'VALIDATION_FAILED'),
      bad(`the body is ${text}`, `POST ${app}/payout/settings`, text, 400, 'VALIDATION_FAILED'),
    ]),
    ...wrong(
      'POST /store',
      { root, data: [{}] },
      {
        root: [
          undefined,
          null,
          1,
          {},
          '',
          'films',
          'shop:films',
          'shop::',
          'shop::a b',
          'shop::a::b',
          `shop::${'x'.repeat(64)}`,
        ],
        data: [undefined, null, {}, 'x', 1, [1], ['x'], [null], [[]], [{}, 3]],
        extra: [1, null],
      },
    ),
    ...[true, {}, [], '', 'x'.repeat(257)].map((id) =>
      bad(
        `an id ${JSON.stringify(id).slice(0, 20)}`,
        'POST /store',
        { root, data: [{ id }] },
        400,
        'VALIDATION_FAILED',
      ),
    ),
    bad(
      'a document of depth 65',
      'POST /store',
      `{"root":"${root}","data":[{"a":${'['.repeat(64)}${']'.repeat(64)}}]}`,
      400,
      'VALIDATION_FAILED',
    ),
    ...wrong(
      'POST /list',
      { root },
      {
        root: [undefined, null, 1, 'films', []],
        find: noObjects,
        select: [1, true, [1], { a: 1 }, { a: true, b: false }, 'a..b', { 'a.-1': true }],
        limit: ['x', 1.5, -1, 0, true, {}],
        offset: ['x', -1, 0.5, []],
        sort: [1, {}, [1], ['a..b'], ['']],
        sortBy: [1, [], 'a..b'],
        sortDirection: ['up', 1],
        include_history: ['yes', 1],
        count: ['all', 1],
        extra: [1],
      },
      'INVALID_QUERY',
    ),
    ...(
      [
        { a: { $unknown: 1 } },
        { $where: 'true' },
        { is: 1 },
        { a: { is: 1, b: 2 } },
        { a: [1] },
        { a: { in: 1 } },
        { a: { notIn: {} } },
        { a: { isNull: 1 } },
        { a: { exists: 'true' } },
        { a: { gt: null } },
        { a: { lt: [] } },
        { a: { gte: {} } },
        { a: { between: 1 } },
        { a: { between: [1] } },
        { a: { between: { from: 1 } } },
        { a: { between: { from: 1, max: 2 } } },
        { a: { startsWith: 1 } },
        { and: {} },
        { or: [1] },
        { not: 'x' },
        { 'a..b': 1 },
        { '.a': 1 },
        { '': 1 },
        { 'a.-1': 1 },
        { 'a.$nope': 1 },
      ] as const
    ).map((find) => bad(`find ${JSON.stringify(find)}`, 'POST /list', { root, find }, 400, 'INVALID_QUERY')),
  ];
}
