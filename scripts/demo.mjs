import { File } from 'node:buffer';
import { createClient, expect, Unexpected } from './demo/client.mjs';
import { ratingOf, ratingsByGenre, readFilms } from './demo/films.mjs';
import { help, readOptions } from './demo/options.mjs';
import { readEnvFile } from './launch.mjs';
import { count, note, pageLines, pick, progress, title } from './demo/transcript.mjs';

/** @import { Answer, Client } from './demo/client.mjs' @import { Film } from './demo/films.mjs' */

const batchSize = 200;
const collection = 'films';
const files = 'posters';
const view = 'rating_by_genre';
const page = (/** @type {Answer} */ { json }) => pageLines(json);

/**
 * Public, so that the demo can read it without a key even if `DEFAULT_READ` is private. An existing collection is not
 * changed.
 * @param {Client} client
 */
async function createPublicCollections(client) {
  for (const name of [collection, files]) {
    const body = JSON.stringify({ name, access_policy: { read: 'public' } });
    await client.send({ method: 'POST', path: `/api/apps/${client.app}/collections`, body }, [201, 409]);
  }
}

/** @param {Client} client @param {Film[]} films */
async function loadFilms(client, films) {
  title(`Load the ${count(films.length)} films of vega-datasets into the collection ${collection}`);
  const store = (/** @type {Film[]} */ data) => ({
    method: 'POST',
    path: '/store',
    body: JSON.stringify({ root: `${client.app}::${collection}`, data }),
  });
  client.showRequest({ ...store([]), body: `{"root":"${client.app}::${collection}","data":[… ${batchSize} films …]}` });
  const report = progress(films.length, 'films');
  const startedMs = performance.now();
  for (let offset = 0; offset < films.length; offset += batchSize) {
    const batch = films.slice(offset, offset + batchSize);
    const { json } = await client.send(store(batch), [202]);
    expect(
      json.results.length === batch.length,
      `A batch of ${batch.length} films was stored as ${json.results.length}.`,
    );
    report(offset + batch.length);
  }
  note(`stored in ${Math.round(performance.now() - startedMs)} ms, ${batchSize} in one commit`);
  await client.show(
    { method: 'GET', path: `/api/apps/${client.app}/collections/${collection}/stats` },
    pick('document_count', 'version_count', 'size_bytes', 'index_count'),
  );
}

/** @param {Client} client */
async function makeIndexes(client) {
  title('Index them by rating and by genre');
  const indexes = [
    { field: 'IMDB Rating', type: 'number' },
    { field: 'Major Genre', type: 'string' },
  ];
  for (const { field, type } of indexes) {
    const definition = { name: field, collection, field_name: field, index_type: type };
    const request = { method: 'POST', path: `/api/apps/${client.app}/indexes`, body: JSON.stringify(definition) };
    const { json } = await client.show(request, pick('name', 'index_type', 'status', 'ticket_id'), [200, 201, 202]);
    if (json.ticket_id) await client.waitFor(json.ticket_id);
    else expect(json.status === 'ready', `The index ${field} is ${json.status}.`);
  }
}

/** @param {Client} client @param {Film[]} films */
async function queryFilms(client, films) {
  title('Query the best comedies with many votes: any filter, selection and order');
  const query = {
    root: `${client.app}::${collection}`,
    find: { 'Major Genre': 'Comedy', 'IMDB Rating': { gte: 7.5 }, 'US Gross': { gt: 100_000_000 } },
    select: ['Title', 'IMDB Rating', 'Director'],
    sort: ['-IMDB Rating', 'Title'],
    limit: 5,
  };
  const { json } = await client.show({ method: 'POST', path: '/list', body: JSON.stringify(query) }, page);
  const matching = films.filter(
    (film) => film['Major Genre'] === 'Comedy' && ratingOf(film) >= 7.5 && (film['US Gross'] ?? 0) > 100_000_000,
  );
  expect(json.total === matching.length, `/list counts ${json.total} comedies; the data set has ${matching.length}.`);
}

/** @param {Client} client @param {Film[]} films */
async function readInPublic(client, films) {
  title('Read without a key: collections that are not private are public');
  const parameters = {
    'Major Genre': 'Drama',
    'IMDB Rating.$gte': '8.5',
    sort: '-IMDB Rating',
    select: 'Title,IMDB Rating',
    limit: '3',
  };
  const text = Object.entries(parameters)
    .map(([name, value]) => `${encodeURI(name)}=${encodeURI(value)}`)
    .join('&');
  const path = `/api/apps/${client.app}/collections/${collection}/data?${text}`;
  const { json } = await client.show({ method: 'GET', path, isPublic: true }, page);
  const { length } = films.filter((film) => film['Major Genre'] === 'Drama' && ratingOf(film) >= 8.5);
  expect(json.total === length, `Endpoint 3 counts ${json.total} dramas; the data set has ${length}.`);
}

/** @param {Client} client @param {Film[]} films */
async function makeView(client, films) {
  title('Keep the mean rating of each genre in a view');
  const definition = {
    name: view,
    source_collections: [collection],
    query: {
      find: { 'IMDB Rating': { isNotNull: true } },
      group_by: 'Major Genre',
      aggregate: { films: { $count: '*' }, mean_rating: { $avg: 'IMDB Rating' } },
    },
    access_policy: { read: 'public' },
  };
  const request = { method: 'POST', path: `/apps/${client.app}/views`, body: JSON.stringify(definition) };
  const made = await client.show(request, pick('message', 'ticket_id', 'error', 'code'), [202, 409]);
  const again = { method: 'POST', path: `/apps/${client.app}/views/${view}/refresh` };
  const { json } = made.status === 202 ? made : await client.show(again, pick('message', 'ticket_id'), [202]);
  await client.waitFor(json.ticket_id);
  const path = `/api/views/${client.app}/${view}/data?sort=-mean_rating`;
  checkRatings((await client.show({ method: 'GET', path, isPublic: true }, page)).json.records, films);
}

/**
 * @param {{ 'Major Genre': string | null, films: number, mean_rating: number }[]} records
 * @param {Film[]} films
 */
function checkRatings(records, films) {
  const expected = ratingsByGenre(films);
  expect(records.length === expected.size, `The view has ${records.length} genres, not ${expected.size}.`);
  for (const { 'Major Genre': genre, films: filmCount, mean_rating: mean } of records) {
    const rating = expected.get(genre);
    const isRight = rating !== undefined && filmCount === rating.films && Math.abs(mean - rating.mean) < 1e-9;
    expect(isRight, `The view has ${filmCount} films of ${genre} with the mean ${mean}; that is wrong.`);
  }
}

/** @param {Client} client @param {Film[]} films */
async function storeBlob(client, films) {
  title('Upload a file, and read a part of it');
  const rated = films.filter((film) => film['IMDB Rating'] !== null);
  const best = rated.sort((a, b) => ratingOf(b) - ratingOf(a) || (a.id < b.id ? -1 : 1)).slice(0, 10);
  const poster = `The ten best films\n\n${best.map((film) => `${film['IMDB Rating']}  ${film.Title}\n`).join('')}`;
  const metadata = JSON.stringify({ kind: 'poster', films: best.map(({ id }) => id) });
  const uploaded = await client.show(
    {
      method: 'POST',
      path: `/api/apps/${client.app}/blobs/${files}`,
      // Repeating the demo repeats the same upload, so it creates no second blob.
      headers: { 'Idempotency-Key': 'demo-poster' },
      form: {
        blob: { file: new File([poster], 'poster.txt', { type: 'text/plain' }), toString: () => '@poster.txt' },
        metadata,
      },
    },
    pick('blob_id', 'ticket_id', 'status'),
    [202],
  );
  const read = (/** @type {Record<string, string>} */ headers) => ({
    method: 'GET',
    path: `/api/apps/${client.app}/blobs/${files}/${uploaded.json.blob_id}`,
    isPublic: true,
    headers,
  });
  const part = await client.show(
    read({ Range: 'bytes=0-17' }),
    ({ text, headers }) => [`Content-Range: ${headers.get('content-range')}`, text],
    [206],
  );
  expect(part.text === poster.slice(0, 18), 'The first 18 bytes that came back are not those that were sent.');
  const etag = part.headers.get('etag') ?? '';
  await client.show(read({ 'If-None-Match': etag }), () => ['not sent again, because nothing has changed'], [304]);
  const whole = await client.send(read({}));
  expect(whole.text === poster, 'The file that came back is not the one that was sent.');
}

/** @param {Client} client */
async function lookAround(client) {
  title("Show the app's wallet");
  await client.show({ method: 'GET', path: `/api/apps/${client.app}/wallet` }, pick('address', 'balance', 'currency'));
  title('Check the health of the six services');
  const { json } = await client.show({ method: 'GET', path: '/health', isPublic: true }, ({ json: health }) => [
    `status: ${health.status}`,
    ...Object.entries(health.checks).map(([name, check]) => `${name}: ${check.status} in ${check.latency_ms} ms`),
  ]);
  expect(json.status === 'healthy', `The service is ${json.status}.`);
}

async function run() {
  readEnvFile();
  const options = await readOptions(process.argv.slice(2), process.env);
  if (!options) return console.log(help);
  const client = createClient(options);
  const films = await readFilms();
  await createPublicCollections(client);
  await loadFilms(client, films);
  await makeIndexes(client);
  await queryFilms(client, films);
  await readInPublic(client, films);
  await makeView(client, films);
  await storeBlob(client, films);
  await lookAround(client);
  console.log('\nAll results were as expected.');
}

run().catch((error) => {
  console.error(`\n${error instanceof Unexpected ? '' : 'The demo could not be run: '}${error.message}`);
  process.exitCode = 1;
});
