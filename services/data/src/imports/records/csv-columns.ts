import { shortened } from '@granary/shared/shortened';
import { documentDepthMax } from '../../json/document';

export const columnsMax = 1_000;
/** Characters of a column's path. */
const pathLengthMax = 500;
/** Characters of it in a sentence. */
const nameLengthMax = 200;

const named = (path: string): string => `"${shortened(path, nameLengthMax)}"`;

/** Why these are no paths of the columns of a file, as a sentence that names the column; undefined where they are. */
export function columnsProblem(columns: readonly string[]): string | undefined {
  if (columns.length === 0) return 'There are no columns';
  if (columns.length > columnsMax) return `There are ${columns.length} columns, and at most ${columnsMax} are allowed`;
  const paths = new Set<string>();
  for (const [index, path] of columns.entries()) {
    const problem = pathProblem(path, index);
    if (problem !== undefined) return problem;
    if (paths.has(path)) return `The column ${named(path)} is there twice`;
    paths.add(path);
  }
  for (const path of columns) {
    for (let dot = path.indexOf('.'); dot >= 0; dot = path.indexOf('.', dot + 1)) {
      const begin = path.slice(0, dot);
      if (paths.has(begin)) return `The column ${named(begin)} has a value, and ${named(path)} is inside of it`;
    }
  }
  return undefined;
}

function pathProblem(path: string, index: number): string | undefined {
  if (path === '') return `Column ${index + 1} has no name`;
  if (path.length > pathLengthMax)
    return `The path of the column ${named(path)} has more than ${pathLengthMax} characters`;
  const steps = path.split('.');
  if (steps.includes('')) return `The path of the column ${named(path)} has an empty step`;
  if (steps.includes('__proto__')) return `The path of the column ${named(path)} has the step __proto__`;
  if (steps.length > documentDepthMax) {
    return `The path of the column ${named(path)} has more than ${documentDepthMax} steps`;
  }
  return undefined;
}
