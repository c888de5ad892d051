import { row, rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql, Sql } from '@granary/shared/postgres/sql';
import { tiaText } from '@granary/shared/money/amounts';
import { appNotFound, type App } from '../catalog/app';
import { amountOf, storedPrice } from '../catalog/read-price';
import { generatedBytesMax, type SkillsContent } from './markdown';
import { isPrivateQuery, newestQueries } from '../queries/saved-queries';

/** Collections, views or queries that are read to be described, and about the bytes of them; more are only counted. */
const describedMax = 200;
const describedBytesMax = generatedBytesMax;

/**
 * The content of the skills document of an app, with the revision of the catalog that it shows: collections and views
 * that are private for `mayReadPrivate` only, of queries as many as their public listing names. Throws APP_NOT_FOUND.
 */
export async function readContent(
  tx: Queryable,
  app: App,
  baseUrl: string,
  mayReadPrivate: boolean,
): Promise<{ revision: bigint; content: SkillsContent }> {
  const application = await row<ApplicationRow>(
    tx,
    sql`select h.catalog_revision as revision, a.name, a.description, a.skills_owner_part as owner_part,
               a.payment_networks
        from application a join head h on h.app_number = a.number where a.number = ${app.number}`,
  );
  if (!application) throw appNotFound(app.appId);
  const { revision, name, description, owner_part: ownerPart, payment_networks: paymentNetworks } = application;
  const collections = await readCollections(tx, app, mayReadPrivate);
  const views = await readViews(tx, app, mayReadPrivate);
  const queries = await readQueries(tx, app);
  return {
    revision,
    content: {
      appId: app.appId,
      name,
      description,
      ownerPart,
      paymentNetworks: paymentNetworks ?? [],
      baseUrl,
      collections: collections.entries,
      views: views.entries,
      queries: queries.entries,
      totals: { collections: collections.total, views: views.total, queries: queries.total },
    },
  };
}

interface ApplicationRow {
  revision: bigint;
  name: string;
  description: string;
  owner_part: string;
  payment_networks: string[] | null;
}

/** The first entries of a kind, and the number of all. */
interface Described<T> {
  entries: T[];
  total: number;
}

async function readCollections(
  tx: Queryable,
  app: App,
  mayReadPrivate: boolean,
): Promise<Described<SkillsContent['collections'][number]>> {
  const collections = await rows<CollectionRow>(
    tx,
    described(
      sql`name, read_access, read_price_config_text as price`,
      sql`collection where app_number = ${app.number} and deleted_at is null and (${mayReadPrivate} or read_access <> 'private')`,
      sql`name`,
      sql`octet_length(name)`,
    ),
  );
  const indexes = await rows<IndexRow>(
    tx,
    sql`select collection, field_name, index_type, price from (
          select f.*, sum(octet_length(f.field_name)) over (order by f.collection, f.number rows unbounded preceding) as bytes
          from (select c.name as collection, i.number, unnest(coalesce(i.fields, array[i.field_name])) as field_name, i.index_type,
                  i.read_price_config_text as price
                from document_index i join collection c on c.number = i.collection_number
                where i.app_number = ${app.number} and i.status <> 'failed' and c.deleted_at is null
                  and (${mayReadPrivate} or c.read_access <> 'private')) f) d
        where bytes <= ${describedBytesMax} order by collection, number limit ${describedMax * 10}`,
  );
  const entries = collections.map(({ name, read_access, price }) => ({
    name,
    price: priceInWords(price),
    isPrivate: read_access === 'private',
    indexes: indexes
      .filter(({ collection }) => collection === name)
      .map((index) => ({ field: index.field_name, type: index.index_type, price: priceInWords(index.price) })),
  }));
  return { entries, total: totalOf(collections) };
}

async function readViews(
  tx: Queryable,
  app: App,
  mayReadPrivate: boolean,
): Promise<Described<SkillsContent['views'][number]>> {
  // A public view may be over a private collection, whose name is not public.
  const sources = sql`array(select s.name from unnest(source_collections) with ordinality s (name, n)
    where ${mayReadPrivate} or not exists (select from collection c where c.app_number = ${app.number}
      and c.name = s.name and c.deleted_at is null and c.read_access = 'private') order by s.n)`;
  const views = await rows<ViewRow>(
    tx,
    described(
      sql`name, ${sources} as sources, read_access, variables_text, read_price_config_text as price`,
      sql`view where app_number = ${app.number} and (${mayReadPrivate} or read_access <> 'private')`,
      sql`name`,
      sql`octet_length(variables_text)`,
    ),
  );
  const entries = views.map(({ name, sources, read_access, variables_text, price }) => ({
    name,
    price: priceInWords(price),
    sources,
    isPrivate: read_access === 'private',
    variablesText: variables_text,
  }));
  return { entries, total: totalOf(views) };
}

async function readQueries(tx: Queryable, app: App): Promise<Described<SkillsContent['queries'][number]>> {
  const queries = await rows<QueryRow>(
    tx,
    described(
      sql`q.name, source_collection as source, description, parameters_text, q.read_price_config_text as price,
        ${isPrivateQuery} as is_private`,
      newestQueries(app.number),
      sql`q.name`,
      sql`octet_length(description) + octet_length(parameters_text)`,
    ),
  );
  const entries = queries.map(({ name, source, description, is_private: isPrivate, parameters_text, price }) => ({
    name,
    price: priceInWords(price),
    source,
    description,
    isPrivate,
    parametersText: parameters_text,
  }));
  return { entries, total: totalOf(queries) };
}

/** The first entries of a kind by name, cut in Postgres to what can be described; each with the number of all. */
const described = (columns: Sql, from: Sql, name: Sql, bytes: Sql): Sql =>
  sql`select * from (
        select ${columns}, count(*) over () as total, row_number() over listed as place,
          sum(${bytes}) over (listed rows unbounded preceding) as bytes_so_far
        from ${from} window listed as (order by ${name})) d
      where place <= ${describedMax} and (bytes_so_far <= ${describedBytesMax} or place = 1) order by place`;

/** Puts the price of a read without a key that has `Read` into words; empty where there is no price. */
function priceInWords(text: string | null): string {
  const price = storedPrice(text);
  const amount = amountOf(price);
  if (amount === undefined) return '';
  if (amount === 0n) return 'free';
  return `${tiaText(amount)} TIA ${price!.pricingModel === 'per_kb' ? 'for each KB of the answer' : 'for each read'}`;
}

const totalOf = (entries: ReadonlyArray<{ total: bigint }>): number => Number(entries[0]?.total ?? 0n);

interface CollectionRow {
  name: string;
  price: string | null;
  read_access: string;
  total: bigint;
}

interface IndexRow {
  collection: string;
  field_name: string;
  index_type: string;
  price: string | null;
}

interface ViewRow {
  name: string;
  price: string | null;
  sources: string[];
  read_access: string;
  variables_text: string;
  total: bigint;
}

interface QueryRow {
  name: string;
  price: string | null;
  source: string;
  description: string;
  is_private: boolean;
  parameters_text: string;
  total: bigint;
}
