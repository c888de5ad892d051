import { readJson, toPlain } from '@granary/shared/json/value';
import { operatorNames } from '../query/language/operators';
import type { Task } from '@granary/shared/concurrency/time-slicing';

/** Something that can be read, with its price in words. The price is empty where it has none of its own. */
interface Offer {
  name: string;
  isPrivate: boolean;
  price: string;
}

/** The content of an app that its skills document describes. */
export interface SkillsContent {
  appId: string;
  name: string;
  description: string;
  ownerPart: string;
  /** The networks on which x402 payments are taken; empty: all that the operator offers. */
  paymentNetworks: readonly string[];
  baseUrl: string;
  collections: Array<Offer & { indexes: Array<{ field: string; type: string; price: string }> }>;
  views: Array<Offer & { sources: string[]; variablesText: string }>;
  queries: Array<Offer & { source: string; description: string; parametersText: string }>;
  /** How many there are, of which the arrays hold the first. */
  totals: { collections: number; views: number; queries: number };
}

/** Bytes of the generated part, at most; what does not fit is counted, with a link to its listing. */
export const generatedBytesMax = 256 * 1024;

export const generatedBegin = '<!-- granary:generated:begin -->';
export const generatedEnd = '<!-- granary:generated:end -->';

/** The owner's part, then the generated part between markers. */
export function* skillsMarkdown(content: SkillsContent): Task<string> {
  const { ownerPart } = content;
  const part = yield* generated(content);
  return `${ownerPart === '' ? '' : `${ownerPart}\n\n`}${generatedBegin}\n${part}\n${generatedEnd}\n`;
}

/**
 * Returns the owner's part of a text. A document that was read, changed and put back still has its first line and its
 * generated part, which are removed. Markers that are left over are made harmless, because they would make two
 * generated parts of one.
 */
export function ownerPartOf(markdown: string): string {
  const kept: string[] = [];
  let from = 0;
  for (;;) {
    const begin = markdown.indexOf(generatedBegin, from);
    const end = begin < 0 ? -1 : markdown.indexOf(generatedEnd, begin);
    kept.push(markdown.slice(from, end < 0 ? undefined : begin));
    if (end < 0) break;
    from = end + generatedEnd.length;
  }
  return kept
    .join('')
    .replace(/^<!-- [^\n]*, revision \d+, [^\n]* -->\n/, '')
    .replaceAll('granary:generated:', 'granary generated ')
    .trim();
}

function* generated(content: SkillsContent): Task<string> {
  const before = introduction(content);
  const after = examples(content);
  let leftBytes = generatedBytesMax - sizeOf([...before, ...after]) - summaryBytes;
  const kinds = kindsOf(content);
  const sections = [...before];
  for (const [index, kind] of kinds.entries()) {
    if (kind.total === 0) {
      sections.push(...kind.empty);
      continue;
    }
    // Each kind may have its part of what is left, so that many collections do not leave out all views.
    const budgetBytes = leftBytes / (kinds.length - index);
    const described = [...kind.heading];
    let count = 0;
    for (const section of kind.entries) {
      const texts = section();
      yield;
      if (sizeOf([...described, ...texts]) > budgetBytes) break;
      described.push(...texts);
      count += 1;
    }
    leftBytes -= sizeOf(described);
    sections.push(...described);
    if (count < kind.total) sections.push(`${kind.total - count} more are not described here: ${kind.listing}`);
  }
  sections.push(...after);
  return sections.join('\n\n');
}

/** Bytes reserved for the lines about what is left out. */
const summaryBytes = 2 * 1024;

const sizeOf = (sections: readonly string[]): number =>
  sections.reduce((sum, section) => sum + Buffer.byteLength(section) + 2, 0);

/** Collections, views or queries, as the document describes them. */
interface Kind {
  heading: string[];
  /** The lines in place of the heading where there are no entries. */
  empty: string[];
  entries: Array<() => string[]>;
  total: number;
  /** How all of them are listed. */
  listing: string;
}

function introduction(content: SkillsContent): string[] {
  const { appId, baseUrl, name, description, paymentNetworks, collections, views, queries } = content;
  const isPriced = ({ price }: { price: string }): boolean => price !== '';
  const hasPrices = [...collections, ...views, ...queries, ...collections.flatMap(({ indexes }) => indexes)].some(
    isPriced,
  );
  return [
    `# ${inline(name)}`,
    ...(description === '' ? [] : [inline(description)]),
    `App \`${appId}\` at ${baseUrl}. What is marked private needs a key with the permission Read in the header \`X-App-Key\`.`,
    ...(hasPrices
      ? [
          'What has a price is free with a key with Read of this app. Others pay with an agent key (permission Pay) of an app of their own, in the header `X-Agent-Key`; without payment the answer is 402 and states the price. A field with a price costs it where a read filters or sorts by it or shows it, the highest price counts, and views and queries without a price of their own cost what they read.',
        ]
      : []),
    ...(hasPrices && paymentNetworks.length > 0
      ? [`x402 payments are taken on ${paymentNetworks.map(code).join(', ')}, as far as the answer 402 offers them.`]
      : []),
    `The same for programs, with the types of fields and parameters (OpenAPI 3.1): ${baseUrl}/api/apps/${appId}/openapi.json`,
  ];
}

function examples({ appId, baseUrl, collections }: SkillsContent): string[] {
  const collection = collections[0]?.name ?? 'collection';
  const root = `${appId}::${collection}`;
  const appUrl = `${baseUrl}/api/apps/${appId}`;
  return [
    '## Queries of any kind',
    `\`POST /list\` (Read) takes filters, a selection, a sort order and a page:`,
    curl(
      `-X POST '${baseUrl}/list' -H 'X-App-Key: $APP_KEY' -H 'Content-Type: application/json'`,
      `-d '{"root": "${root}", "find": {}, "limit": 10}'`,
    ),
    `Operators of a field, as \`{"field": {"operator": …}}\` or, also in URLs, as a suffix (\`field.$operator\`): ${operatorNames.map(code).join(', ')}. \`and\`, \`or\` and \`not\` take lists of filters.`,
    '## Storing',
    `\`POST /store\` (Write) stores documents together or not at all; a document whose \`id\` exists becomes its new version:`,
    curl(
      `-X POST '${baseUrl}/store' -H 'X-App-Key: $APP_KEY' -H 'Content-Type: application/json'`,
      `-d '{"root": "${root}", "data": [{"id": "1"}]}'`,
    ),
    '## Whole collections and their changes',
    '`GET …/export` (Read) is a whole collection as it is at one moment, a document on each line; `format` may be `json` or `csv`:',
    curl(keyHeader(true), `'${appUrl}/collections/${collection}/export'`),
    '`POST …/import` (Write) stores the documents of a file of any size, one on each line:',
    curl(`-X POST '${appUrl}/collections/${collection}/import'`, keyHeader(true), '-T documents.ndjson'),
    'The feed (Read) has each change once, from a height on; `since` is the `cursor` of the last page then, and `wait` the seconds to wait for more. With `Accept: text/event-stream` it goes on as changes are made:',
    curl(keyHeader(true), `'${appUrl}/changes?since=0&limit=100'`),
  ];
}

function kindsOf(content: SkillsContent): Kind[] {
  const { appId, baseUrl, collections, views, queries, totals } = content;
  const listing = (path: string, note: string) => `\`GET ${baseUrl}/api/apps/${appId}/${path}\`${note}.`;
  return [
    {
      heading: [
        '## Collections',
        'Filter by `id` and the indexed fields as parameters of the URL; `limit`, `offset`, `sort`, `select` and `count` are reserved.',
      ],
      empty: ['## Collections', 'There are none yet.'],
      entries: collections.map((collection) => () => collectionSection(content, collection)),
      total: totals.collections,
      listing: listing('collections', ' (Read)'),
    },
    {
      heading: ['## Views'],
      empty: [],
      entries: views.map((view) => () => viewSection(content, view)),
      total: totals.views,
      listing: listing('views', ' (Read)'),
    },
    {
      heading: ['## Predefined queries'],
      empty: [],
      entries: queries.map((query) => () => querySection(content, query)),
      total: totals.queries,
      listing: listing('queries', ''),
    },
  ];
}

type Entry<K extends 'collections' | 'views' | 'queries'> = SkillsContent[K][number];

function collectionSection(
  { appId, baseUrl }: SkillsContent,
  { name, isPrivate, indexes, price }: Entry<'collections'>,
): string[] {
  const fields = indexes
    .map(({ field, type, price: ofField }) => `\n- ${code(field)} (${type})${ofField && `, ${ofField}`}`)
    .join('');
  const [first] = indexes;
  const searched = indexes.find(({ type }) => type === 'fulltext');
  const filter = first ? `?${urlPart(first.field)}.$exists=true&limit=10` : '?limit=10';
  return [
    `### ${name}${isPrivate ? ' (private)' : ''}`,
    ...priceLine(price),
    fields === '' ? 'No indexed field but `id`.' : `Indexed fields:${fields}`,
    curl(keyHeader(isPrivate), `'${baseUrl}/api/apps/${appId}/collections/${name}/data${filter}'`),
    ...(searched ? [`Words are found with \`${urlPart(searched.field)}.$search=…\`, phrases in double quotes.`] : []),
  ];
}

function viewSection(
  { appId, baseUrl }: SkillsContent,
  { name, sources, isPrivate, variablesText, price }: Entry<'views'>,
): string[] {
  const variables = Object.entries(plainOf(variablesText) as Record<string, string>);
  const over = sources.length === 0 ? '' : `Over ${sources.map(code).join(', ')}.`;
  const list = variables.map(([variable, path]) => `\n- ${code(variable)}: ${code(path)}`).join('');
  return [
    `### ${name}${isPrivate ? ' (private)' : ''}`,
    ...priceLine(price),
    ...(over === '' && list === '' ? [] : [`${over}${list === '' ? '' : `${over && ' '}Variables:${list}`}`]),
    curl(keyHeader(isPrivate), `'${baseUrl}/api/views/${appId}/${name}/data?limit=10'`),
  ];
}

function querySection(
  { appId, baseUrl }: SkillsContent,
  { name, source, description, isPrivate, parametersText, price }: Entry<'queries'>,
): string[] {
  if (isPrivate) {
    return [
      `### ${name} (private)`,
      `Its definition and parameters: \`GET ${baseUrl}/api/apps/${appId}/queries/${name}\` (Read).`,
      curl(keyHeader(isPrivate), `'${baseUrl}/api/queries/${appId}/${name}/data'`),
    ];
  }
  const parameters = plainOf(parametersText) as Array<{ name: string; field_path: string; required?: boolean }>;
  const example = parameters
    .filter(({ required }) => required === true)
    .map((parameter) => `${urlPart(parameter.name)}=VALUE`)
    .join('&');
  const described = parameters
    .map(
      ({ name: parameter, field_path: field, required }) =>
        `\n- ${code(parameter)}: ${code(field)}${required === true ? ', required' : ''}`,
    )
    .join('');
  return [
    `### ${name}`,
    ...priceLine(price),
    `${description === '' ? '' : `${inline(description)} `}Over ${code(source)}.${described === '' ? '' : ` Parameters:${described}`}`,
    curl(`'${baseUrl}/api/queries/${appId}/${name}/data${example === '' ? '' : `?${example}`}'`),
  ];
}

const priceLine = (price: string): string[] => (price === '' ? [] : [`Price: ${price}.`]);

const plainOf = (text: string): unknown => toPlain(readJson(Buffer.from(text), { maxDepth: 64 }));

const keyHeader = (isPrivate: boolean): string => (isPrivate ? `-H 'X-App-Key: $APP_KEY'` : '');

function curl(...parts: string[]): string {
  // The key is a variable of the shell, which is not expanded in single quotes.
  const line = parts
    .filter((part) => part !== '')
    .join(' ')
    .replace(`'X-App-Key: $APP_KEY'`, `"X-App-Key: $APP_KEY"`);
  return `\`\`\`sh\ncurl -s ${line}\n\`\`\``;
}

/** A user's text in a URL between single quotes of the shell. */
const urlPart = (text: string): string => encodeURIComponent(text).replaceAll("'", '%27');

/** Text of a user on one line. */
const inline = (text: string): string => text.replaceAll(/\s+/g, ' ').trim();

const code = (text: string): string => `\`${inline(text).replaceAll('`', "'")}\``;
