import { newApp, type Granary, type TestApp } from './granary';

/** An app with something of every kind that its OpenAPI document describes, in public and in private. */
export async function describedApp(granary: Pick<Granary, 'url'>): Promise<TestApp> {
  const app = await newApp(granary);
  const make = async (path: string, body: string | object): Promise<void> => {
    const answer = await app.call<{ ticket_id?: string }>('POST', `/api/apps/${app.appId}/${path}`, body);
    if (answer.status > 202) throw new Error(`${path}: ${answer.status} ${answer.text}`);
    if (answer.body.ticket_id !== undefined) await app.ended(answer.body.ticket_id);
  };
  const fields = {
    title: { type: 'string', required: true, validation: { min: 1, max: 200, pattern: '^[^ ]' } },
    year: { type: 'number', index: true, validation: { min: 1888, max: 'BEYOND' } },
    rating: { type: 'string', validation: { enum: ['G', 'PG', 'R'] }, default: 'G' },
    seen: { type: 'boolean', index: true },
    'studio.city': { type: 'string', index: true },
    'studio.founded': { type: 'date' },
    tags: { type: 'array', validation: { max: 20 }, description: 'Words' },
    limit: { type: 'number', index: true },
    odd: { type: 'string', validation: { pattern: '(?i)^[[:alpha:]]+$' } },
  };
  const films = JSON.stringify({ name: 'films', schema_definition: { fields } });
  // A number that no double is.
  await make('collections', films.replace('"BEYOND"', '9007199254740993'));
  await make('collections', { name: 'vault', access_policy: { read: 'private' } });
  await make('indexes', { name: 'by_when', collection: 'films', field_name: 'shown.at', index_type: 'date' });
  await make('indexes', { name: 'by_any', collection: 'films', field_name: "it's any", index_type: 'btree' });
  await make('indexes', { name: 'by_secret', collection: 'vault', field_name: 'secret_field', index_type: 'string' });
  await app.store('films', [{ id: 'heat', title: 'Heat', year: 1995, "it's any": 1, studio: { city: 'Burbank' } }]);
  await app.store('vault', [{ id: 'v', secret_field: 'gold' }]);
  await make('views', {
    name: 'per_year',
    source_collections: ['films'],
    query: { group_by: ['year', 'studio.city'], aggregate: { films: { $count: '*' }, best: { $max: 'rating' } } },
    variables: { since: 'year.$gte', films: 'films' },
  });
  await make('views', { name: 'old', source_collections: ['films'], query: { find: { year: { lt: 1990 } } } });
  await make('views', { name: 'hidden_view', source_collections: ['vault'], query: {} });
  await make('views', {
    name: 'shown_view',
    source_collections: ['vault'],
    query: { group_by: 'secret_field', aggregate: { all: { $count: '*' } } },
    access_policy: { read: 'public' },
  });
  const parameters = [
    { name: 'since', field_path: 'year.$gte', default: 1990, description: 'The first year' },
    { name: 'in', field_path: 'studio.city.$in', required: true },
    { name: 'top', field_path: 'limit', default: 5 },
  ];
  const ofFilms = { source_collection: 'films', base_query: { sort: ['year'], limit: 50 }, parameters };
  await make('queries', { name: 'films_of', version: 1, ...ofFilms, description: 'The first form' });
  await make('queries', { name: 'films_of', version: 2, ...ofFilms, description: 'Films of some studios' });
  await make('queries', { name: 'hidden_query', source_collection: 'vault', base_query: {} });
  return app;
}
