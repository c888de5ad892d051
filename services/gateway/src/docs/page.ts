import { hash } from 'node:crypto';
import type { FullAnswer } from '../http/answer';
import type { OpenapiDocument, Schema, SecurityScheme } from './document';
import { markup, Markup, prose, table } from './markup';
import { headerOf, methodOf, operationArticle, type Entry } from './operation';
import { fieldTable, typeOf } from './schema-table';
import { style } from './style';

/** Allows the style of the page, by its hash, and nothing else: no script, no request. */
const contentSecurityPolicy = [
  "default-src 'none'",
  `style-src 'sha256-${hash('sha256', style, 'base64')}'`,
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

/** Placeholder for the address of the service, which is inserted per request. */
const addressMark = 'address-of-the-service';

/** The page for clients that reach the service at `url`. */
export type DocsPage = (url: string) => FullAnswer;

/** Renders the document of `openapiDocument` once; only the address is inserted later. */
export function docsPage(published: Record<string, unknown>): DocsPage {
  const parts = render(published as unknown as OpenapiDocument).text.split(addressMark);
  const headers = {
    'Content-Type': 'text/html; charset=utf-8',
    'Content-Security-Policy': contentSecurityPolicy,
  };
  return (url) => ({ status: 200, body: Buffer.from(parts.join(markup`${url}`.text)), headers });
}

function render(document: OpenapiDocument): Markup {
  const { title, version, description } = document.info;
  const { schemas, securitySchemes } = document.components;
  const groups = groupsOf(document);
  return markup`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} API ${version}</title>
<style>${new Markup(style)}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the documentation</a>
<nav aria-label="Contents"><ul>
<li><a href="#begin">${title}</a></li>
${groups.map(({ tag, entries }) => navigation(tag, entries))}
<li><a href="#schemas">Schemas</a></li>
</ul></nav>
<main id="main" tabindex="-1">
<h1 id="begin">${title} API <small>${version}</small></h1>
<p>${prose(description)}</p>
<p>This page is made from <a href="/openapi.json">/openapi.json</a>. Its examples are commands for a shell in which <code>URL</code> is the address of the service (<code>URL=${addressMark}</code>) and each key that they name is set (<code>APP_KEY=app_…</code>). They work in the order of the page for an application <code>demo</code>, once the ids in capitals are replaced.</p>
<h2 id="authentication">Authentication</h2>
${authentication(securitySchemes)}
${groups.map(
  ({ tag, description, entries }) => markup`<section>
<h2 id="${anchorOf(tag)}">${tag}</h2>
<p>${prose(description)}</p>
${entries.map((entry) => operationArticle(entry, document))}
</section>
`,
)}
<h2 id="schemas">Schemas</h2>
${Object.entries(schemas).map(([name, schema]) => schemaArticle(name, schema))}
</main>
</body>
</html>
`;
}

function authentication(schemes: Record<string, SecurityScheme>): Markup {
  const rows = Object.entries(schemes).map(([id, scheme]) => [headerOf(scheme), id, prose(scheme.description ?? '')]);
  return table('fields', ['Header', 'Name', 'About'], rows);
}

function schemaArticle(name: string, schema: Schema): Markup {
  return markup`<article id="schema-${name}">
<h3><a href="#schema-${name}">${name}</a></h3>
${fieldTable(schema) ?? typeOf(schema)}
</article>
`;
}

/** Creations first, deletions last, so that the commands work when they are typed in the order of the page. */
function orderOf({ method, operation }: Entry): number {
  if (operation.operationId.startsWith('create')) return 0;
  return method === 'delete' ? 2 : 1;
}

/** The operations by tag. */
function groupsOf({ paths, tags }: OpenapiDocument): Array<{ tag: string; description: string; entries: Entry[] }> {
  const entries = Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]): Entry => ({ method, path, operation })),
  );
  return tags.map(({ name: tag, description }) => ({
    tag,
    description,
    entries: entries
      .filter(({ operation }) => operation.tags[0] === tag)
      .sort((one, other) => orderOf(one) - orderOf(other)),
  }));
}

function anchorOf(tag: string): string {
  return `tag-${tag.toLowerCase().replace(/[^a-z0-9]+/g, '-')}`;
}

function navigation(tag: string, entries: readonly Entry[]): Markup {
  const lines = entries.map(
    ({ method, operation: { operationId: id, summary } }) =>
      markup`<li><a href="#${id}">${methodOf(method)}<span>${summary}</span></a></li>
`,
  );
  return markup`<li><a href="#${anchorOf(tag)}">${tag}</a><ul>
${lines}</ul></li>
`;
}
