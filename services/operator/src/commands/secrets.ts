import { randomBytes } from 'node:crypto';
import { trustEnvironments } from '@granary/shared/trust/environments';
import { defineCommand } from '../program/command';

const usage = `Generates the secrets with which the services authenticate to each other.

  npm run service-secrets

prints, for each service, the lines of its environment. With ROOT_SECRET (at least 32 characters) in the environment
they are derived from it, the same ones each time; what services derive from an INTERNAL_SECRET of that value is the
same too, so those that have the one understand those that have the other.
`;

export const secrets = defineCommand({
  usage,
  options: {},
  run: async (_values, _positionals, { environment, say }) => {
    const root = environment['ROOT_SECRET'] ?? randomBytes(32).toString('base64url');
    if (root.length < 32) throw new Error('ROOT_SECRET needs at least 32 characters.');
    for (const [service, settings] of Object.entries(trustEnvironments(root))) {
      say(`# ${service}`);
      for (const [name, value] of Object.entries(settings)) say(`${name}=${value}`);
    }
  },
});
