import { randomBytes } from 'node:crypto';

const usage = `Generates the secrets with which the services authenticate to each other.

  node scripts/service-secrets.mjs

prints, for each service, the lines of its environment. With ROOT_SECRET (at least 32 characters) in the environment
they are derived from it, the same ones each time; what services derive from an INTERNAL_SECRET of that value is the
same too, so those that have the one understand those that have the other. \`npm run build\` must have run.
`;

async function main() {
  if (process.argv.length > 2) throw new Error(usage);
  const root = process.env.ROOT_SECRET ?? randomBytes(32).toString('base64url');
  if (root.length < 32) throw new Error('ROOT_SECRET needs at least 32 characters.');
  const { trustEnvironments } = await import('@granary/shared/trust/environments');
  for (const [service, environment] of Object.entries(trustEnvironments(root))) {
    console.log(`# ${service}`);
    for (const [name, value] of Object.entries(environment)) console.log(`${name}=${value}`);
  }
}

try {
  await main();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
