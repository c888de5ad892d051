import { curlOf } from './curl';
import { exampleIn, responseIn, type OpenapiDocument, type Operation, type SecurityScheme } from './document';
import { joined, markup, prose, table, type Markup } from './markup';
import { fieldTable, parameterTable, typeOf } from './schema-table';

/** An operation with its method and path. */
export interface Entry {
  method: string;
  path: string;
  operation: Operation;
}

/** The section of an operation. */
export function operationArticle({ method, path, operation }: Entry, document: OpenapiDocument): Markup {
  const schemes = document.components.securitySchemes;
  const { operationId: id, summary, description, parameters } = operation;
  return markup`<article id="${id}">
<h3><a href="#${id}">${summary}</a></h3>
<p class="endpoint">${methodOf(method)} <code>${path}</code></p>
${description === undefined ? undefined : markup`<p>${prose(description)}</p>`}
<p class="quiet">Authentication: ${accessOf(operation.security, schemes)}</p>
${parameters.length > 0 ? markup`<h4>Parameters</h4>${parameterTable(parameters)}` : undefined}
${requestBody(operation)}
<h4>Responses</h4>
${responses(operation, document)}
<h4>Example</h4>
<pre tabindex="0"><code>${curlOf(method, path, operation, schemes)}</code></pre>
${answerExample(operation, document)}
</article>
`;
}

export function methodOf(method: string): Markup {
  return markup`<span class="method ${method}">${method.toUpperCase()}</span>`;
}

/** The header that carries a credential. */
export function headerOf(scheme: SecurityScheme): Markup {
  return markup`<code>${scheme.type === 'http' ? 'Authorization: Bearer' : scheme.name}</code>`;
}

function accessOf(security: Operation['security'], schemes: Record<string, SecurityScheme>): Markup {
  if (security.length === 0) return markup`none`;
  const ways = security.map((needed) => {
    const names = Object.keys(needed).map((id) => headerOf(schemes[id]!));
    return names.length === 0 ? markup`none` : markup`${joined(names, ' with ')}`;
  });
  return markup`${joined(ways, ' or ')}`;
}

function requestBody({ requestBody }: Operation): Markup | undefined {
  if (!requestBody) return undefined;
  // Media types with the same schema share one entry.
  const bySchema = new Map<string, string[]>();
  for (const [type, { schema }] of Object.entries(requestBody.content)) {
    const key = JSON.stringify(schema);
    bySchema.set(key, [...(bySchema.get(key) ?? []), type]);
  }
  return markup`<h4>Request body${requestBody.required ? '' : ' (optional)'}</h4>
${[...bySchema].map(([, types]) => {
  const { schema } = requestBody.content[types[0]!]!;
  const names = types.map((type) => markup`<code>${type}</code>`);
  return markup`<p class="quiet">${joined(names, ', ')}: ${typeOf(schema)}</p>${fieldTable(schema)}`;
})}`;
}

/** The example of the first successful response that has one. */
function answerExample({ responses }: Operation, document: OpenapiDocument): Markup | undefined {
  for (const [status, response] of Object.entries(responses)) {
    if (!status.startsWith('2')) continue;
    const example = exampleIn(responseIn(document, response).content, document);
    if (example === undefined) continue;
    const text = typeof example === 'string' ? example : JSON.stringify(example, undefined, 2);
    return markup`<h4>Answer <code>${status}</code></h4>
<pre tabindex="0"><code>${text}</code></pre>`;
  }
  return undefined;
}

function responses({ responses }: Operation, document: OpenapiDocument): Markup {
  const resolved = Object.entries(responses).map(([status, one]) => [status, responseIn(document, one)] as const);
  const rows = resolved.map(([status, { description, content = {} }]) => {
    const bodies = Object.entries(content).map(([type, { schema }]) =>
      type === 'application/json' ? typeOf(schema) : markup`${typeOf(schema)} (<code>${type}</code>)`,
    );
    return [markup`<code>${status}</code>`, prose(description), joined(bodies, ', ')];
  });
  const fields = resolved.flatMap(([status, { content = {} }]) =>
    Object.values(content).flatMap(({ schema }) => {
      const schemaTable = fieldTable(schema);
      return schemaTable ? [markup`<h4>Fields of <code>${status}</code></h4>${schemaTable}`] : [];
    }),
  );
  return markup`${table('responses', ['Status', 'Meaning', 'Body'], rows)}${fields}`;
}
