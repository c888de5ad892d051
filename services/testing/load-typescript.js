// Node's `--require` of this file lets a program of the tests be a TypeScript file: it and the files of tests beside it
// are translated as they are loaded. Packages are loaded as they were built; the sources of a service are refused,
// because a process with both would have two copies of each module.
const { sep } = require('node:path');
const { transformFileSync } = require('@swc/core');

require.extensions['.ts'] = (module, filename) => {
  if (filename.includes(`${sep}src${sep}`))
    throw new Error(`${filename} is a source: import it by the name of its package`);
  const { code } = transformFileSync(filename, {
    swcrc: false,
    jsc: { parser: { syntax: 'typescript' }, target: 'es2022' },
    module: { type: 'commonjs' },
    sourceMaps: 'inline',
  });
  module._compile(code, filename);
};
