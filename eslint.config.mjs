import js from '@eslint/js';
import tseslint from 'typescript-eslint';

// kafkajs and the OpenTelemetry SDK are used in services/shared only, minio in the stores of services/blobs.
// The pattern is the name `minio` alone, and not that of a file.
const wrapped = ['kafkajs', '/minio', '@opentelemetry/*', '@grpc/*'];
const wrappedMessage = 'Only services/shared may import this, and services/blobs/src/stores the client of S3.';
// What a suite of the front door would load the services with.
const services = ['blobs', 'data', 'finance', 'payments', 'tasks', 'local', 'operator', 'stack', 'kube'].map(
  (name) => `@granary/${name}/**`,
);

export default tseslint.config(
  {
    ignores: [
      '**/dist/',
      '**/gen/',
      'node_modules/',
      'coverage/',
      '.granary/',
      '.granary-stack/',
      'services/e2e/clients/typescript/',
      'services/e2e/clients/client/',
      'services/e2e/clients/cli/',
    ],
  },
  js.configs.recommended,
  {
    rules: {
      // Prettier wraps code, and leaves comments as they are.
      'max-len': ['error', { code: 100_000, comments: 120, ignoreUrls: true }],
      'no-restricted-syntax': [
        'error',
        ...[
          'ObjectExpression > SpreadElement > ObjectExpression',
          'ArrayExpression > SpreadElement > ArrayExpression',
          'ArrayExpression > SpreadElement > TSAsExpression > ArrayExpression',
        ].map((selector) => ({ selector, message: 'Write the members of the literal itself.' })),
      ],
    },
  },
  {
    files: ['**/*.mjs', '**/*.js'],
    languageOptions: {
      globals: Object.fromEntries(
        [
          'process',
          'console',
          'Buffer',
          'setTimeout',
          'clearTimeout',
          'setInterval',
          'clearInterval',
          'fetch',
          'URL',
          'AbortSignal',
          'AbortController',
          'performance',
          'FormData',
          'Blob',
          'module',
          'require',
          '__dirname',
        ].map((name) => [name, 'readonly']),
      ),
    },
  },
  {
    files: ['services/**/*.ts', 'deploy/**/*.ts'],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { project: 'services/tsconfig.json', tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      '@typescript-eslint/only-throw-error': 'error',
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      'no-console': 'error',
      'no-restricted-imports': ['error', { patterns: [{ group: wrapped, message: wrappedMessage }] }],
    },
  },
  ...['client', 'cli'].map((name) => ({
    files: [`services/${name}/**/*.ts`],
    languageOptions: { parserOptions: { project: `services/${name}/tsconfig.json` } },
  })),
  {
    files: ['services/*/src/**/*.ts', 'deploy/*/src/**/*.ts'],
    ignores: ['**/*.test.ts'],
    rules: {
      'max-lines': ['error', { max: 350 }],
      'max-lines-per-function': ['error', { max: 70, skipBlankLines: true, skipComments: true }],
    },
  },
  {
    files: [
      'services/{shared,testing}/src/**/*.ts',
      'services/blobs/src/stores/**/*.ts',
      // What Granary is compared with.
      'services/bench/src/baselines/**/*.ts',
    ],
    rules: { 'no-restricted-imports': 'off' },
  },
  {
    files: ['services/e2e/front-door/**/*.ts'],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            { group: wrapped, message: wrappedMessage },
            { group: services, message: 'Suites of the front door see HTTP only.' },
          ],
        },
      ],
    },
  },
  {
    files: ['services/{local,operator,testing,bench,e2e}/**/*.ts', 'deploy/**/*.ts', '**/*.test.ts', '**/test/**/*.ts'],
    rules: { 'no-console': 'off' },
  },
);
