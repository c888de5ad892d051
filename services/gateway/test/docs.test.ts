import { execFileSync } from 'node:child_process';
import { hash } from 'node:crypto';
import type { z } from 'zod';
import type { OpenapiDocument, Operation } from '@granary/gateway/docs/document';
import { docsPage } from '@granary/gateway/docs/page';
import { openapiDocument } from '@granary/gateway/openapi/document';
import type { Route } from '@granary/gateway/pipeline/route';
import { routes } from '@granary/gateway/routes/table';

interface Element {
  tag: string;
  attributes: Record<string, string>;
  children: Array<Element | string>;
}

const voidTags = new Set(['meta', 'link', 'br', 'hr', 'img', 'input']);
const entities: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'" };
const decode = (text: string) =>
  text.replace(/&(#?\w+);|[&<>]/g, (found, name?: string) => {
    if (name === undefined || !(name in entities)) throw new Error(`${found} is not escaped in ${text}`);
    return entities[name]!;
  });

/** Strict, as a browser is not: every element is closed in order, every attribute quoted, every value escaped. */
function parse(page: string): Element {
  const root: Element = { tag: '', attributes: {}, children: [] };
  const open = [root];
  const rest = page.replace(/^<!doctype html>\n/, '');
  expect(rest).not.toBe(page);
  for (const [token, end, tag, attributes] of rest.matchAll(
    /<(\/?)([a-z][a-z0-9]*)((?: [a-z-]+="[^"]*")*)>|[^<]+|</g,
  )) {
    const parent = open.at(-1)!;
    if (tag === undefined) parent.children.push(parent.tag === 'style' ? token : decode(token));
    else if (end === '/') {
      if (open.pop()!.tag !== tag) throw new Error(`${token} ends another element`);
    } else {
      const found = [...attributes!.matchAll(/([a-z-]+)="([^"]*)"/g)].map(([, name, value]) => [name, decode(value!)]);
      const element: Element = { tag, attributes: Object.fromEntries(found) as Record<string, string>, children: [] };
      parent.children.push(element);
      if (!voidTags.has(tag)) open.push(element);
    }
  }
  expect(open).toEqual([root]);
  return root;
}

/** The elements below one, in the order of the document. */
function all(element: Element, tag?: string, into: Element[] = []): Element[] {
  for (const child of element.children) {
    if (typeof child === 'string') continue;
    if (tag === undefined || child.tag === tag) into.push(child);
    all(child, tag, into);
  }
  return into;
}
const textOf = (element: Element): string =>
  element.children.map((child) => (typeof child === 'string' ? child : textOf(child))).join('');
const byId = (root: Element, id: string) => all(root).find(({ attributes }) => attributes['id'] === id);
const rowsOf = (element: Element, heading: string): string[][] =>
  all(element, 'table')
    .filter((table) => textOf(all(table, 'th')[0]!) === heading)
    .flatMap((table) => all(all(table, 'tbody')[0]!, 'tr').map((row) => all(row, 'td').map(textOf)));

const published = openapiDocument(routes);
const document = published as unknown as OpenapiDocument;
const answer = docsPage(published)('https://api.example.com');
const page = answer.body.toString();
const root = parse(page);
const elements = new Map(all(root).map((element) => [element.attributes['id'], element]));
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]): [string, string, Operation] => [method, path, operation]),
);

/** The arguments that a shell gives to curl for the example of an operation. */
function argumentsOf(article: Element): string[] {
  const script = `curl() { printf '%s\\0' "$@"; }; URL=http://host; ${textOf(all(article, 'pre')[0]!)}`;
  const keys = { APP_KEY: 'app key', OPERATOR_KEY: 'operator key', WALLET_SIGNATURE: 'signature' };
  return execFileSync('/bin/sh', ['-ceu', `${script}`], {
    env: { ...keys, KEY: 'key', WALLET_ADDRESS: 'address', WALLET_TIMESTAMP: 'time', WALLET_PUBKEY: 'key' },
    encoding: 'utf8',
  })
    .split('\0')
    .slice(0, -1);
}

const optionsOf = (words: readonly string[], name: string): string[] =>
  words.filter((_, at) => at > 0 && words[at - 1] === name);

test('every operation has a section under its tag, with its address, parameters, body and responses', () => {
  for (const [method, path, operation] of operations) {
    const { operationId: id, tags, parameters, requestBody, responses } = operation;
    const section = all(root, 'section').find((one) => textOf(all(one, 'h2')[0]!) === tags[0])!;
    const article = byId(section, id)!;
    expect([id, article.tag]).toEqual([id, 'article']);
    const text = textOf(article);
    expect(text).toContain(operation.summary);
    expect(text).toContain(`${method.toUpperCase()} ${path}`);
    if (operation.description) expect(text).toContain(operation.description.replaceAll('`', ''));
    const names = rowsOf(article, 'Parameter').map(([name]) => name!.split(' ')[0]);
    expect(names).toEqual(parameters.map(({ name, explode }) => (explode ? '…' : name)));
    expect(rowsOf(article, 'Status').map(([status]) => status)).toEqual(Object.keys(responses));
    for (const [type, { schema }] of Object.entries(requestBody?.content ?? {})) {
      expect(text).toContain(type);
      const fields = rowsOf(article, 'Field').map(([field]) => field!.split(' ')[0]);
      expect(fields).toEqual(expect.arrayContaining(Object.keys(schema.properties ?? {})));
    }
    for (const name of operation.security.flatMap(Object.keys)) {
      const scheme = document.components.securitySchemes[name]!;
      expect(text).toContain(scheme.type === 'http' ? 'Authorization: Bearer' : scheme.name);
    }
    const listed = all(all(root, 'nav')[0]!, 'a').find(({ attributes }) => attributes['href'] === `#${id}`)!;
    expect(textOf(listed)).toBe(`${method.toUpperCase()}${operation.summary}`);
  }
  expect(all(root, 'article')).toHaveLength(operations.length + Object.keys(document.components.schemas).length);
});

test('every named schema has a section with its fields', () => {
  for (const [name, schema] of Object.entries(document.components.schemas)) {
    const fields = rowsOf(elements.get(`schema-${name}`)!, 'Field').map(([field]) => field!.split(' ')[0]);
    expect([name, fields]).toEqual([name, expect.arrayContaining(Object.keys(schema.properties!))]);
  }
});

test('no id is there twice, and every link leads somewhere', () => {
  const ids = all(root).flatMap(({ attributes }) => attributes['id'] ?? []);
  expect(new Set(ids).size).toBe(ids.length);
  for (const { attributes } of all(root, 'a')) {
    const href = attributes['href']!;
    expect(href.startsWith('#') ? ids : ['/openapi.json']).toContain(href.replace('#', ''));
  }
});

test('the page needs nothing from anywhere, and its policy allows nothing but its own style', () => {
  const policy = answer.headers['Content-Security-Policy']!;
  const [style, ...others] = all(root, 'style');
  expect(others).toEqual([]);
  expect(policy).toContain("default-src 'none'");
  expect(policy).toContain(`style-src 'sha256-${hash('sha256', textOf(style!), 'base64')}'`);
  expect(policy).not.toContain('unsafe');
  const tags = all(root).map(({ tag }) => tag);
  for (const tag of ['script', 'link', 'img', 'iframe', 'object', 'form', 'base']) expect(tags).not.toContain(tag);
  const names = new Set(all(root).flatMap(({ attributes }) => Object.keys(attributes)));
  expect([...names].sort()).toEqual([
    'aria-label',
    'charset',
    'class',
    'content',
    'href',
    'id',
    'lang',
    'name',
    'tabindex',
  ]);
  expect(textOf(style!)).not.toMatch(/url\(|@import|expression/);
});

test('the example of every operation is a command that calls it, with what it requires and no more', () => {
  for (const [method, path, operation] of operations) {
    const words = argumentsOf(elements.get(operation.operationId)!);
    expect([operation.operationId, optionsOf(words, '-X')]).toEqual([
      operation.operationId,
      method === 'get' ? [] : [method.toUpperCase()],
    ]);
    const url = new URL(words.find((word) => word.startsWith('http://host'))!);
    const route = routes.find(({ id }) => id === operation.operationId)!;
    const steps = path.split('/');
    const given = url.pathname.split('/').map(decodeURIComponent);
    expect(given).toHaveLength(steps.length);
    for (const [at, step] of steps.entries()) {
      const parameter = operation.parameters.find(({ name }) => step === `{${name}}`);
      if (parameter) expect(given[at]).toMatch(new RegExp(parameter.schema.pattern!, 'u'));
      else expect(given[at]).toBe(step);
    }
    const required = operation.parameters.filter((parameter) => parameter.in === 'query' && parameter.required);
    expect([...url.searchParams.keys()]).toEqual(required.map(({ name }) => name));
    const headers = optionsOf(words, '-H').map((line) => line.split(': ')[0]);
    const schemes = Object.keys(operation.security[0] ?? {}).map((id) => document.components.securitySchemes[id]!);
    const needed = operation.parameters.filter((parameter) => parameter.in === 'header' && parameter.required);
    const expected = [
      ...schemes.map((scheme) => (scheme.type === 'http' ? 'Authorization' : scheme.name)),
      ...needed.map((parameter) => parameter.name),
    ];
    expect(headers.filter((name) => name !== 'Content-Type')).toEqual(expected);
    checkBody(operation, words, bodySchemaOf(route));
  }
});

/** Of the media type that comes first. */
function bodySchemaOf({ body }: Route): z.ZodType | undefined {
  if (!body) return undefined;
  return body.kind === 'json' ? body.schema : Object.values(body.content)[0]?.schema;
}

/** The example of a body is one that the route takes. */
function checkBody({ operationId, requestBody }: Operation, words: readonly string[], schema?: z.ZodType): void {
  const [body] = optionsOf(words, '--data-binary');
  if (!requestBody?.required) {
    expect([operationId, body]).toEqual([operationId, undefined]);
    return;
  }
  const [type] = Object.keys(requestBody.content);
  if (type === 'multipart/form-data') {
    const content = requestBody.content[type]!.schema;
    expect(optionsOf(words, '-F').map((field) => field.split('=')[0])).toEqual(content.required);
    return;
  }
  expect(optionsOf(words, '-H')).toContain(`Content-Type: ${type}`);
  const value: unknown = /[/+]json$/.test(type!) ? JSON.parse(body!) : body;
  expect([operationId, schema!.safeParse(value).error]).toEqual([operationId, undefined]);
}

test('text of the document stays text, in the page and in the shell', () => {
  const evil = `</code></style><script>alert(1)</script>"'&amp;$(exit 3)\`exit 4\`\\`;
  const operation: Operation = {
    operationId: evil,
    summary: evil,
    description: evil,
    tags: [evil],
    security: [{ key: [] }],
    parameters: [
      { name: evil, in: 'path', required: true, example: evil, description: evil, schema: { type: evil } },
      { name: evil, in: 'query', required: true, schema: { enum: [evil], pattern: evil } },
    ],
    requestBody: { required: true, content: { 'application/json': { schema: {}, example: { [evil]: evil } } } },
    responses: { [evil]: { description: evil, content: { [evil]: { schema: { $ref: `/${evil}` } } } } },
  };
  const { body } = docsPage({
    info: { title: evil, version: evil, description: evil },
    tags: [{ name: evil, description: evil }],
    paths: { [`/${evil}`]: { post: operation }, [`/{${evil}}`]: { put: { ...operation, operationId: 'plain' } } },
    components: {
      schemas: {},
      responses: {},
      securitySchemes: { key: { type: 'apiKey', in: 'header', name: evil, description: evil } },
    },
  })('http://127.0.0.1:8080');
  const parsed = parse(body.toString());
  expect(all(parsed, 'script')).toEqual([]);
  expect(textOf(byId(parsed, evil)!)).toContain('<script>alert(1)</script>');
  const words = argumentsOf(byId(parsed, 'plain')!);
  expect(words).toContain(JSON.stringify({ [evil]: evil }));
  expect(words).toContain(`${evil}: key`);
  expect(words[2]).toBe(
    `http://host/${encodeURIComponent(evil)}?${encodeURIComponent(evil)}=${encodeURIComponent(evil)}`,
  );
});
