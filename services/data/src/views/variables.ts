import { readJsonText } from '../query/language/paging';
import { parseName } from '../query/language/path';
import { invalidQuery, overLimit } from '../query/language/query-error';

export const variablesMax = 64;
const variableNameMax = 200;
const variablePathMax = 500;
/** Parameters of endpoint 8 that no variable may be named after. */
const reservedParameters = new Set(['filter', 'select', 'sort', 'limit', 'offset', 'cursor', 'count']);

type ParsedName = ReturnType<typeof parseName>;

/** Checked only when a view is created: longer ones may exist from before the limit. */
export function checkVariableLengths(variables: ReadonlyMap<string, ParsedName>): void {
  for (const [name, { path }] of variables) {
    if (name.length > variableNameMax) {
      throw overLimit('variables', `may have names of at most ${variableNameMax} characters`);
    }
    if (path.join('.').length > variablePathMax) {
      throw overLimit(`variables.${name}`, `may be a path of at most ${variablePathMax} characters`);
    }
  }
}

/** The variables of a view by the names of their URL parameters: paths, some with an operator. */
export function parseVariables(text: string): Map<string, ParsedName> {
  const variables = readJsonText(Buffer.from(text), 'variables');
  if (!(variables instanceof Map)) throw invalidQuery('variables', 'must be an object');
  if (variables.size > variablesMax) throw overLimit('variables', `may hold at most ${variablesMax} variables`);
  return new Map(
    [...variables].map(([name, path]) => {
      const location = `variables.${name}`;
      if (name === '' || reservedParameters.has(name)) throw invalidQuery(location, 'has a name that is reserved');
      if (typeof path !== 'string') throw invalidQuery(location, 'must be the path of a field');
      return [name, parseName(path, location)];
    }),
  );
}
