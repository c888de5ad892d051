import { type BadInput, app, bad, shop, wrong } from './bad-input';

/** null is what JSON makes of NaN and of variables that are not set: it is no amount, and takes no limit away. */
export function nulls(): BadInput[] {
  const price = { pricing_model: 'per_access', price_per_access_tia: 0.25 };
  const priced = { name: 'priced', collection: 'films', field_name: 'year', index_type: 'btree' };
  const ofPrice = [
    'pricing_model',
    'price_per_access_tia',
    'price_per_access_utia',
    'price_per_kb_tia',
    'price_per_kb_utia',
  ];
  const quote = { app_id: shop, operation_type: 'write', size_kb: 1, collection: 'films' };
  const rules = (validation: object) => ({
    name: 'limited',
    schema_definition: { fields: { n: { type: 'number', validation } } },
  });
  return [
    ...wrong(`POST ${app}/payout/trigger`, { amount: 100_000 }, { amount: [null], payout_address: [null] }),
    ...['allowed_target_apps', 'expires_at', 'max_payment_per_tx', 'spend_allowance'].flatMap((limit) =>
      ['keys', 'regenerate-key'].map((way) =>
        bad(
          `${limit} is null`,
          `POST ${app}/${way}`,
          { name: 'agent', permissions: ['Pay'], pay_limits: { [limit]: null } },
          400,
          'VALIDATION_FAILED',
        ),
      ),
    ),
    ...wrong('POST /api/pricing/quote', quote, { size_kb: [null], monthly_volume_kb: [null] }),
    ...[...ofPrice, 'app_owner_percentage', 'platform_percentage'].flatMap((member) =>
      ['price_config', 'read_price_config'].map((config) =>
        bad(
          `${config}.${member} is null`,
          `POST ${app}/indexes`,
          { ...priced, [config]: { ...price, [member]: null } },
          400,
          'VALIDATION_FAILED',
        ),
      ),
    ),
    ...['min', 'max', 'pattern', 'enum'].map((bound) =>
      bad(`${bound} is null`, `POST ${app}/collections`, rules({ [bound]: null }), 400, 'VALIDATION_FAILED'),
    ),
    ...wrong(
      `POST ${app}/queries`,
      { name: 'limited', source_collection: 'films', base_query: {}, parameters: [] },
      { base_query: [{ limit: null }] },
    ),
    ...wrong(
      `POST ${app}/views`,
      { name: 'limited', source_collections: ['films'], query: {} },
      { query: [{ limit: null }] },
      'INVALID_QUERY',
    ),
  ];
}
