/** A schema of the OpenAPI document, as far as requests are made from it. */
export interface RequestSchema {
  $ref?: string;
  properties?: Record<string, RequestSchema>;
  additionalProperties?: boolean | RequestSchema;
  items?: RequestSchema;
  anyOf?: RequestSchema[];
  oneOf?: RequestSchema[];
  allOf?: RequestSchema[];
}

/** An operation of the document. */
export interface DescribedOperation {
  id: string;
  method: string;
  /** With the names of its parameters in braces. */
  path: string;
  /** Whether the key of the operator is the only one that it takes. */
  isOperators: boolean;
  parameters: string[];
  body: RequestSchema | undefined;
}

/** A member of a body, or a parameter in a URL. */
export interface DescribedMember {
  /** `operation.path`, `Schema.path` for that of a named schema, `operation?name` for a parameter. */
  name: string;
  operationId: string;
  /** Where it is in a body: names, `[]` for an element, `*` for a member with a name of the caller. */
  address: string[];
  isParameter: boolean;
}

interface OpenapiOperation {
  operationId: string;
  security?: Array<Record<string, unknown>>;
  parameters?: Array<{ $ref?: string; in?: string; name?: string }>;
  requestBody?: { $ref?: string; content?: Record<string, { schema: RequestSchema }> };
}

/** The requests that an OpenAPI document describes. */
export class DescribedRequests {
  readonly operations: DescribedOperation[];

  constructor(private readonly document: { paths: Record<string, Record<string, OpenapiOperation>> }) {
    this.operations = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => this.#operationOf(path, method.toUpperCase(), operation)),
    );
  }

  static async of(url: string): Promise<DescribedRequests> {
    return new DescribedRequests((await (await fetch(`${url}/openapi.json`)).json()) as never);
  }

  /** Every member of every body and every parameter in a URL; those of a named schema once, where it comes first. */
  members(): DescribedMember[] {
    const seen = new Set<string>();
    return this.operations.flatMap((operation) => [
      ...operation.parameters.map((parameter) => ({
        name: `${operation.id}?${parameter}`,
        operationId: operation.id,
        address: [parameter],
        isParameter: true,
      })),
      ...(operation.body === undefined ? [] : this.#membersOf(operation.body, operation.id, operation.id, [], seen)),
    ]);
  }

  /** The objects of bodies that take members with any name beside those that they describe. */
  openObjects(): string[] {
    const members = this.members().filter(({ isParameter }) => !isParameter);
    const parents = new Map(
      members.map(({ name, operationId, address }) => [
        name.replace(/\.[^.]+$/, ''),
        { operationId, address: address.slice(0, -1) },
      ]),
    );
    return [...parents]
      .filter(([, { operationId, address }]) => !this.isClosed(operationId, address))
      .map(([name]) => name);
  }

  /** Whether the object at an address of a body takes the members that it describes only. */
  isClosed(operationId: string, address: readonly string[]): boolean {
    const { body } = this.operations.find(({ id }) => id === operationId)!;
    let schemas = body === undefined ? [] : this.#alternatives(body);
    for (const step of address) schemas = schemas.flatMap((schema) => this.#below(schema, step));
    const objects = schemas.filter(({ properties, additionalProperties }) => properties ?? additionalProperties);
    return objects.length > 0 && objects.every(({ additionalProperties }) => additionalProperties === false);
  }

  #operationOf(path: string, method: string, operation: OpenapiOperation): DescribedOperation {
    const { operationId: id, security = [], parameters = [], requestBody } = operation;
    const inUrl = parameters.map((one) => this.#resolved(one)).filter((one) => one.in === 'query');
    const content = requestBody && this.#resolved(requestBody).content;
    return {
      id,
      method,
      path,
      isOperators: security.length === 1 && 'operatorKey' in security[0]!,
      parameters: inUrl.map(({ name }) => name!),
      body: content?.['application/json']?.schema,
    };
  }

  #membersOf(
    schema: RequestSchema,
    operationId: string,
    at: string,
    address: string[],
    seen: Set<string>,
  ): DescribedMember[] {
    const { $ref } = schema;
    if ($ref !== undefined) {
      if (seen.has($ref)) return [];
      seen.add($ref);
      return this.#membersOf(this.#resolved(schema), operationId, $ref.split('/').at(-1)!, address, seen);
    }
    const { properties = {}, additionalProperties, items } = schema;
    const below = (one: RequestSchema, step: string, suffix: string) =>
      this.#membersOf(one, operationId, at + suffix, [...address, step], seen);
    return [
      ...Object.entries(properties).flatMap(([name, one]) => [
        { name: `${at}.${name}`, operationId, address: [...address, name], isParameter: false },
        ...below(one, name, `.${name}`),
      ]),
      ...(schema.anyOf ?? schema.oneOf ?? schema.allOf ?? []).flatMap((one) =>
        this.#membersOf(one, operationId, at, address, seen),
      ),
      ...(items === undefined ? [] : below(items, '[]', '[]')),
      ...(typeof additionalProperties === 'object' ? below(additionalProperties, '*', '.*') : []),
    ];
  }

  #alternatives(schema: RequestSchema): RequestSchema[] {
    const { anyOf, oneOf, allOf, ...own } = this.#resolved(schema);
    return [own, ...(anyOf ?? oneOf ?? allOf ?? []).flatMap((one) => this.#alternatives(one))];
  }

  #below({ properties, additionalProperties, items }: RequestSchema, step: string): RequestSchema[] {
    const named = step === '[]' ? items : properties?.[step];
    const below = named ?? (typeof additionalProperties === 'object' ? additionalProperties : undefined);
    return below === undefined ? [] : this.#alternatives(below);
  }

  #resolved<T extends { $ref?: string }>(value: T): T {
    if (value.$ref === undefined) return value;
    const steps = value.$ref.split('/').slice(1);
    const found = steps.reduce<unknown>((object, step) => (object as Record<string, unknown>)[step], this.document);
    return this.#resolved(found as T);
  }
}
