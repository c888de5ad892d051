import { variantsOf, type Content, type Operation, type Schema, type SecurityScheme } from './document';

/**
 * The command that calls an operation, with the required parameters, the first way to authenticate and the example of
 * the body. Address and keys are shell variables: $URL, and $APP_KEY for the scheme `appKey`.
 */
export function curlOf(
  method: string,
  path: string,
  { parameters, security, requestBody }: Operation,
  schemes: Record<string, SecurityScheme>,
): string {
  const required = parameters.filter((parameter) => parameter.required);
  const filled = required
    .filter((parameter) => parameter.in === 'path')
    .reduce((text, { name, example = name }) => text.replace(`{${name}}`, encodeURIComponent(example)), path);
  const query = required
    .filter((parameter) => parameter.in === 'query')
    .map(({ name, schema }) => `${encodeURIComponent(name)}=${encodeURIComponent(String(sampleOf(schema)))}`);
  const url = [filled, ...query].reduce((text, part, index) => `${text}${index === 1 ? '?' : '&'}${part}`);
  const headers = required
    .filter((parameter) => parameter.in === 'header')
    .map(({ name, example = name }) => `-H ${quoted(`${name}: ${example}`)}`);
  const verb = method.toUpperCase();
  return [
    `curl ${verb === 'GET' ? '' : `-X ${verb} `}"$URL${inert(url)}"`,
    ...Object.keys(security[0] ?? {}).map((id) => `-H ${credential(id, schemes[id]!)}`),
    ...headers,
    ...(requestBody?.required ? bodyArguments(requestBody.content) : []),
  ].join(' \\\n  ');
}

function credential(id: string, scheme: SecurityScheme): string {
  const variable = id.replace(/[A-Z]/g, '_$&').replace(/\W+/g, '_').toUpperCase();
  const header = scheme.type === 'http' ? 'Authorization: Bearer ' : `${scheme.name}: `;
  return `"${inert(header)}$${variable}"`;
}

/** The body in its first media type. */
function bodyArguments(content: Content): string[] {
  const [type, { schema, example = sampleOf(schema) }] = Object.entries(content)[0]!;
  if (type === 'multipart/form-data') {
    return (schema.required ?? []).map((name) =>
      schema.properties![name]!.format === 'binary'
        ? `-F ${quoted(`${name}=@file.png`)}`
        : `-F ${quoted(`${name}=${String(sampleOf(schema.properties![name]!))}`)}`,
    );
  }
  const text = /[/+]json$/.test(type) ? JSON.stringify(example) : String(example);
  return [`-H ${quoted(`Content-Type: ${type}`)}`, `--data-binary ${quoted(text)}`];
}

/** Escapes text for use between double quotes. */
function inert(text: string): string {
  return text.replace(/[\\"$`]/g, '\\$&');
}

/** Quotes text as one word of a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The smallest value that a schema allows. */
function sampleOf(schema: Schema): unknown {
  if ('const' in schema) return schema.const;
  if ('default' in schema) return schema.default;
  if (schema.enum) return schema.enum[0];
  const first = variantsOf(schema)[0];
  if (first !== undefined && first !== schema) return sampleOf(first);
  switch (schema.type) {
    case 'object':
      return sampleObject(schema);
    case 'array':
      return schema.items && schema.minItems ? [sampleOf(schema.items)] : [];
    case 'integer':
    case 'number':
      return Math.max(schema.minimum ?? 0, 0);
    case 'boolean':
      return true;
    default:
      return 'text';
  }
}

/** The required members, or the first one if none is required. */
function sampleObject({ properties = {}, required = [] }: Schema): Record<string, unknown> {
  const names = required.length > 0 ? required : Object.keys(properties).slice(0, 1);
  return Object.fromEntries(names.map((name) => [name, sampleOf(properties[name]!)]));
}
