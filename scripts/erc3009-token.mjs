// Compiles the token of the tests on EVM networks. With --check it only says whether the stored bytecode is that of the
// source.
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
const folder = fileURLToPath(new URL('../services/testing/src/erc3009/', import.meta.url));
const stored = path.join(folder, 'token.json');

/**
 * @typedef {object} CompilerOutput
 * @property {{ severity: string, formattedMessage: string }[]} [errors] warnings too
 * @property {{ 'token.sol': { TestUsdc: { abi: object[], evm: { bytecode: { object: string } } } } }} contracts
 */

/** `{compiler, abi, bytecode}` of the token, as text. */
export function compileToken() {
  const solc = require('solc');
  const input = {
    language: 'Solidity',
    sources: { 'token.sol': { content: readFileSync(path.join(folder, 'token.sol'), 'utf8') } },
    settings: {
      optimizer: { enabled: true, runs: 200 },
      evmVersion: 'cancun',
      outputSelection: { 'token.sol': { TestUsdc: ['abi', 'evm.bytecode.object'] } },
    },
  };
  const read = (/** @type {string} */ name) => ({ contents: readFileSync(require.resolve(name), 'utf8') });
  /** @type {CompilerOutput} */
  const { errors = [], contracts } = JSON.parse(solc.compile(JSON.stringify(input), { import: read }));
  const wrong = errors.filter(({ severity }) => severity === 'error');
  if (wrong.length > 0) throw new Error(wrong.map(({ formattedMessage }) => formattedMessage).join('\n'));
  const { abi, evm } = contracts['token.sol'].TestUsdc;
  return `${JSON.stringify({ compiler: solc.version(), abi, bytecode: `0x${evm.bytecode.object}` })}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const compiled = compileToken();
  if (!process.argv.includes('--check')) writeFileSync(stored, compiled);
  else if (readFileSync(stored, 'utf8') !== compiled) throw new Error(`${stored} is not what the source compiles to`);
}
