import { newWallet } from '../../support/wallet-signing';
import { type BadInput, bad, app, shop } from './bad-input';

export function conflicts(): BadInput[] {
  const people = `${shop}::people`;
  const person = { name: 'anna', email: 'anna@x' };
  return [
    bad('a name in use', `POST ${app}/collections`, { name: 'films' }, 409, 'ALREADY_EXISTS', {
      says: 'already exists',
    }),
    bad('the name of a view', `POST ${app}/collections`, { name: 'by_year' }, 409, 'ALREADY_EXISTS'),
    bad(
      'the name of a view',
      `POST /apps/${shop}/views`,
      { name: 'by_year', query: {}, source_collections: ['films'] },
      409,
      'ALREADY_EXISTS',
      { says: 'already exists' },
    ),
    bad(
      'the name of a collection',
      `POST /apps/${shop}/views`,
      { name: 'films', query: {}, source_collections: ['films'] },
      409,
      'ALREADY_EXISTS',
      { says: 'already exists' },
    ),
    bad(
      'the name of a query',
      `POST /apps/${shop}/queries`,
      { name: 'of_year', source_collection: 'films', base_query: {} },
      409,
      'ALREADY_EXISTS',
    ),
    bad('an app id in use', 'POST /api/applications', { app_id: shop, name: 'x' }, 409, 'ALREADY_EXISTS'),
    bad(
      'another type',
      `POST ${app}/indexes`,
      { name: 'films_year', collection: 'films', field_name: 'year', index_type: 'string' },
      409,
      'ALREADY_EXISTS',
    ),
    bad(
      'another field',
      `POST ${app}/indexes`,
      { name: 'films_year', collection: 'films', field_name: 'title', index_type: 'number' },
      409,
      'ALREADY_EXISTS',
    ),
    bad(
      'duplicates under a unique index',
      `POST ${app}/indexes`,
      { name: 'u', collection: 'films', field_name: 'year', index_type: 'number', options: { unique: true } },
      409,
      'UNIQUE_VIOLATION',
    ),
    bad('documents in it', `DELETE ${app}/collections/people`, undefined, 409, 'COLLECTION_NOT_EMPTY'),
    bad(
      'a view and a query read it',
      `DELETE ${app}/collections/films?force=true`,
      undefined,
      409,
      'COLLECTION_IN_USE',
    ),
    bad('a taken value', 'POST /store', { root: people, data: [person] }, 409, 'UNIQUE_VIOLATION', {
      says: 'data[0].email',
    }),
    bad(
      'a value twice in one call',
      'POST /store',
      {
        root: people,
        data: [
          { ...person, email: 'b@x' },
          { ...person, email: 'b@x' },
        ],
      },
      409,
      'UNIQUE_VIOLATION',
      { says: 'data[1].email' },
    ),
    bad(
      'a required field is missing',
      'POST /store',
      { root: people, data: [{ email: 'c@x' }] },
      422,
      'SCHEMA_VIOLATION',
      { says: 'data[0].name' },
    ),
    bad('a wrong type', 'POST /store', { root: people, data: [{ name: 7 }] }, 422, 'SCHEMA_VIOLATION', {
      says: 'data[0].name',
    }),
    bad(
      'beyond the maximum',
      'POST /store',
      { root: people, data: [{ name: 'a', age: 151 }] },
      422,
      'SCHEMA_VIOLATION',
      { says: '150' },
    ),
    bad(
      'a day that is none',
      'POST /store',
      { root: people, data: [{ name: 'a', born: '2023-02-29T00:00:00Z' }] },
      422,
      'SCHEMA_VIOLATION',
      { says: 'data[0].born' },
    ),
    bad(
      'a payout without a destination',
      `POST ${app}/payout/trigger`,
      { amount: 100_000 },
      409,
      'PAYOUT_DESTINATION_MISSING',
    ),
    bad(
      'a payout from an empty wallet',
      `POST ${app}/payout/trigger`,
      { amount: 100_000, payout_address: newWallet().address },
      409,
      'INSUFFICIENT_FUNDS',
    ),
    bad(
      'a lower locked balance',
      `POST ${app}/payout/settings`,
      { locked_balance: 499, min_payout: 77 },
      409,
      'LOCKED_BALANCE_DECREASE',
    ),
  ];
}
