import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as ts from 'typescript';
import { codes } from '@granary/gateway/errors/codes';
import { pathParameters } from '@granary/gateway/pipeline/path-parameters';

const root = join(__dirname, '../../..');

/** Reasons that no client sees, with why. */
const internal: Record<string, string> = {
  CALL_REFUSED: 'between services; a caller gets INTERNAL',
  CHANNELS_UNKNOWN: 'asks the gateway to send the channels of a feed',
  ACCOUNT_NOT_FOUND: 'of the ledger, which no route reaches yet',
};

/** Where the reason is among the arguments of what makes a ServiceError. */
const makers: Record<string, { at: number; otherwise?: string }> = {
  ServiceError: { at: 1 },
  invalid: { at: 2, otherwise: 'VALIDATION_FAILED' },
  notFound: { at: 0 },
  conflict: { at: 0 },
};

const files = readdirSync(join(root, 'services'))
  .flatMap((service) => {
    const folder = join('services', service, 'src');
    return existsSync(join(root, folder))
      ? readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((file) => join(folder, file))
      : [];
  })
  .filter((file) => /\.ts$/.test(file) && !/\.test\.ts$|\/gen\//.test(file))
  .map((file) => ts.createSourceFile(file, readFileSync(join(root, file), 'utf8'), ts.ScriptTarget.ES2022, true));

const constants = new Map<string, string>();
const visit = (node: ts.Node, look: (node: ts.Node) => void): void => {
  look(node);
  ts.forEachChild(node, (child) => visit(child, look));
};
for (const file of files) {
  visit(file, (node) => {
    if (ts.isVariableDeclaration(node) && ts.isIdentifier(node.name) && node.initializer) {
      if (ts.isStringLiteral(node.initializer)) constants.set(node.name.text, node.initializer.text);
    }
  });
}

/** The text of a literal or of a constant with such a name; undefined for what is only passed on. */
function textOf(node: ts.Expression | undefined): string | undefined {
  if (node === undefined) return undefined;
  if (ts.isStringLiteral(node)) return node.text;
  return ts.isIdentifier(node) ? constants.get(node.text) : undefined;
}

function thrown(): string[] {
  const found: string[] = [];
  for (const file of files) {
    visit(file, (node) => {
      if (!ts.isNewExpression(node) && !ts.isCallExpression(node)) return;
      const maker = ts.isIdentifier(node.expression) ? makers[node.expression.text] : undefined;
      if (!maker) return;
      const given = node.arguments?.[maker.at];
      const reason = given === undefined ? maker.otherwise : textOf(given);
      if (reason !== undefined) found.push(reason);
    });
  }
  return found;
}

/** The codes of answers that are made without a ServiceError, or of one that is kept with an import. */
const besides = ['INTERNAL', 'MALFORMED_REQUEST', 'HEADERS_TOO_LARGE', 'MALFORMED_CSV', 'TOO_MANY_ERRORS'];

test('every code that a client can get is in the catalogue, and every code of the catalogue can be got', () => {
  const reasons = [...thrown(), ...Object.values(pathParameters).map(({ reason }) => reason), ...besides].filter(
    (reason) => !(reason in internal),
  );
  expect([...new Set(reasons)].sort()).toEqual(Object.keys(codes).sort());
});

test('no reason is declared internal that nothing throws', () => {
  const reasons = new Set(thrown());
  expect(Object.keys(internal).filter((reason) => !reasons.has(reason))).toEqual([]);
});

test('docs/errors.md lists every code with its status and meaning, by status', () => {
  const page = readFileSync(join(root, 'docs/errors.md'), 'utf8');
  const rows = page
    .split('\n')
    .filter((line) => /^\| \d{3} /.test(line))
    .map((line) =>
      line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    );
  const expected = Object.entries(codes)
    .map(([code, { status, meaning }]) => [String(status), `\`${code}\``, meaning])
    .sort(([one], [other]) => Number(one) - Number(other));
  expect(rows).toEqual(expected);
});
