/** What an app offers, as its skills document tells it. */
export interface SkillsContent {
  appId: string;
  name: string;
  description: string;
  ownerPart: string;
  baseUrl: string;
  collections: Array<{ name: string; isPrivate: boolean; indexes: Array<{ field: string; type: string }> }>;
  views: Array<{ name: string; sources: string[]; isPrivate: boolean; variables: Array<[name: string, path: string]> }>;
  queries: Array<{
    name: string;
    source: string;
    description: string;
    isPrivate: boolean;
    parameters: Array<{ name: string; field: string; isRequired: boolean }>;
  }>;
  /** Collections, views and queries that are not listed because there are too many. */
  undescribed: number;
}

export const generatedBegin = '<!-- granary:generated:begin -->';
export const generatedEnd = '<!-- granary:generated:end -->';

/** The owner's part, then what is generated, between markers. */
export function skillsMarkdown(content: SkillsContent): string {
  const { ownerPart } = content;
  return `${ownerPart === '' ? '' : `${ownerPart}\n\n`}${generatedBegin}\n${generated(content)}\n${generatedEnd}\n`;
}

/**
 * What of a text is the owner's: a document that was read, changed and put back brings its first line and its generated
 * part along. Markers that are left over are made harmless, for they would make two generated parts of one.
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

function generated(content: SkillsContent): string {
  const { appId, baseUrl } = content;
  const sections = [
    `# ${inline(content.name)}`,
    content.description === '' ? '' : inline(content.description),
    `App \`${appId}\` at ${baseUrl}. What is marked private needs a key with the permission Read in the header \`X-App-Key\`.`,
    ...collectionSection(content),
    ...viewSection(content),
    ...querySection(content),
    content.undescribed > 0 ? `${content.undescribed} more are not listed here.` : '',
    '## Queries of any kind',
    `\`POST /list\` (Read) takes filters, a selection, a sort order and a page:`,
    curl(
      `-X POST '${baseUrl}/list' -H 'X-App-Key: $APP_KEY' -H 'Content-Type: application/json'`,
      `-d '{"root": "${appId}::${content.collections[0]?.name ?? 'collection'}", "find": {}, "limit": 10}'`,
    ),
    '## Storing',
    `\`POST /store\` (Write) stores documents together or not at all; a document whose \`id\` exists becomes its new version:`,
    curl(
      `-X POST '${baseUrl}/store' -H 'X-App-Key: $APP_KEY' -H 'Content-Type: application/json'`,
      `-d '{"root": "${appId}::${content.collections[0]?.name ?? 'collection'}", "data": [{"id": "1"}]}'`,
    ),
  ];
  return sections.filter((section) => section !== '').join('\n\n');
}

function collectionSection({ appId, baseUrl, collections }: SkillsContent): string[] {
  if (collections.length === 0) return ['## Collections', 'There are none yet.'];
  return [
    '## Collections',
    'Filter by `id` and the indexed fields as parameters of the URL; `limit`, `offset`, `sort`, `select` and `count` are reserved.',
    ...collections.flatMap(({ name, isPrivate, indexes }) => {
      const fields = indexes.map(({ field, type }) => `\n- ${code(field)} (${type})`).join('');
      const [first] = indexes;
      const filter = first ? `?${urlPart(first.field)}.$exists=true&limit=10` : '?limit=10';
      return [
        `### ${name}${isPrivate ? ' (private)' : ''}`,
        fields === '' ? 'No indexed field but `id`.' : `Indexed fields:${fields}`,
        curl(keyHeader(isPrivate), `'${baseUrl}/api/apps/${appId}/collections/${name}/data${filter}'`),
      ];
    }),
  ];
}

function viewSection({ appId, baseUrl, views }: SkillsContent): string[] {
  if (views.length === 0) return [];
  return [
    '## Views',
    ...views.flatMap(({ name, sources, isPrivate, variables }) => [
      `### ${name}${isPrivate ? ' (private)' : ''}`,
      `Over ${sources.map(code).join(', ')}.${variables.length === 0 ? '' : ` Variables:${list(variables)}`}`,
      curl(keyHeader(isPrivate), `'${baseUrl}/api/views/${appId}/${name}/data?limit=10'`),
    ]),
  ];
}

const list = (variables: ReadonlyArray<[string, string]>): string =>
  variables.map(([name, path]) => `\n- ${code(name)}: ${code(path)}`).join('');

function querySection({ appId, baseUrl, queries }: SkillsContent): string[] {
  if (queries.length === 0) return [];
  return [
    '## Predefined queries',
    ...queries.flatMap(({ name, source, description, isPrivate, parameters }) => {
      const required = parameters.filter(({ isRequired }) => isRequired);
      const example = required.map((parameter) => `${urlPart(parameter.name)}=VALUE`).join('&');
      const described = parameters
        .map(
          (parameter) =>
            `\n- ${code(parameter.name)}: ${code(parameter.field)}${parameter.isRequired ? ', required' : ''}`,
        )
        .join('');
      return [
        `### ${name}${isPrivate ? ' (private)' : ''}`,
        `${description === '' ? '' : `${inline(description)} `}Over ${code(source)}.${described === '' ? '' : ` Parameters:${described}`}`,
        curl(
          keyHeader(isPrivate),
          `'${baseUrl}/api/queries/${appId}/${name}/data${example === '' ? '' : `?${example}`}'`,
        ),
      ];
    }),
  ];
}

const keyHeader = (isPrivate: boolean): string => (isPrivate ? `-H 'X-App-Key: $APP_KEY'` : '');

function curl(...parts: string[]): string {
  // The key stands in a variable of the shell, which single quotes would keep from being read.
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
