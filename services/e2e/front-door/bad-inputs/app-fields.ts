import { type BadInput, app, shop, wrong } from './bad-input';

const permissions = [null, [], 'Read', ['read'], ['Root'], [1], { Read: true }];
const pay_limits = [
  null,
  1,
  { allowed_target_apps: 'x' },
  { allowed_target_apps: ['a b'] },
  { expires_at: 'tomorrow' },
  { max_payment_per_tx: -1 },
  { spend_allowance: '5' },
  { other: 1 },
];

export function appFields(): BadInput[] {
  return [
    ...wrong(
      `POST ${app}/payout/settings`,
      {},
      {
        auto_payout_enabled: ['true', 1, []],
        locked_balance: [-1, 0.5, '1', 2 ** 53, true],
        min_payout: [-1, 1.5, '0'],
        payout_threshold: [-5, {}, 2 ** 60],
        payout_destination: [
          1,
          '',
          'celestia1',
          'x'.repeat(129),
          'celestia1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqpjnvf0',
          'cosmos1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqjsf7pe',
          '0x52908400098527886E0F7030069857D2E4169EE7',
        ],
        extra: [1],
      },
    ),
    ...wrong(
      `POST ${app}/payout/trigger`,
      { amount: 100_000 },
      {
        amount: [0, -1, 1.5, '5', 2 ** 53, true, [1]],
        payout_address: [
          1,
          '',
          'celestia1',
          'x'.repeat(129),
          'celestia1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqpjnvf0',
          'cosmos1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqjsf7pe',
          '0x52908400098527886E0F7030069857D2E4169EE7',
        ],
        extra: [1],
      },
    ),
    ...wrong(
      `POST ${app}/payout/history`,
      {},
      { limit: [0, '1'], offset: [-1, 1_000_001], status: ['done', 1], extra: [1] },
    ),
    ...wrong(`POST ${app}/payout/info`, {}, { extra: [1] }),
    ...wrong(
      `POST ${app}/regenerate-key`,
      { permissions: ['Read'] },
      { name: ['', '.', '..', 1, 'x'.repeat(201)], permissions, pay_limits, extra: [1] },
    ),
    ...wrong(`POST ${app}/regenerate-key`, { name: 'none' }, { permissions: [undefined] }),
    ...wrong(
      `POST ${app}/keys`,
      { name: 'new', permissions: ['Read'] },
      {
        name: [undefined, null, '', '.', '..', 1, 'x'.repeat(201)],
        permissions: [undefined, ...permissions],
        pay_limits,
        extra: [1],
      },
    ),
    ...wrong(
      'POST /api/applications',
      { name: 'x' },
      {
        app_id: ['', '..', 'a b', '_a', '-a', 'ä', 'x'.repeat(64), 1],
        name: [undefined, null, '', 1, 'x'.repeat(201)],
        description: [1, 'x'.repeat(10_001)],
        owner_address: [1, '', 'x'.repeat(129)],
        extra: [1],
      },
    ),
    ...wrong(
      `PATCH /api/applications/${shop}`,
      { payment_networks: null },
      { payment_networks: [undefined, [], 'base', [1], ['base'], Array(9).fill('base')], extra: [1] },
    ),
    ...wrong(`PUT /api/skills/${shop}/skills.md`, {}, { markdown: [undefined, null, 1] }),
  ];
}
