import type { Command } from './program/command';

export interface ListedCommand {
  /** The description of the command in the list of commands. */
  summary: string;
  /**
   * Loads the command by itself: the image has no Postgres to restore to, and so lacks the packages of some commands.
   */
  load: () => Promise<Command>;
}

/**
 * Every command, by its name. One that a pod needs, and that imports no `services/local`, is also listed in
 * `scripts/image/application.mjs` and `deploy/image/granary.mjs`. Rules and SQL stay in the package of their noun.
 */
export const commands: Readonly<Record<string, ListedCommand>> = {
  backup: {
    summary: 'backs up all data of a data directory',
    load: async () => (await import('@granary/operator/commands/backup')).backup,
  },
  restore: {
    summary: 'restores a backup to a data directory, and verifies all of it',
    load: async () => (await import('@granary/operator/commands/restore')).restore,
  },
  verify: {
    summary: 'checks the hash chain of an app',
    load: async () => (await import('@granary/operator/commands/verify')).verify,
  },
  payouts: {
    summary: 'shows payouts that wait for a person',
    load: async () => (await import('@granary/operator/commands/payouts')).payouts,
  },
  'dead-letters': {
    summary: 'lists and replays events that a consumer could not apply',
    load: async () => (await import('@granary/operator/commands/dead-letters')).deadLetters,
  },
  'ledger-verify': {
    summary: 'derives every balance from the entries of the ledger',
    load: async () => (await import('@granary/operator/commands/ledger-verify')).ledgerVerify,
  },
  secrets: {
    summary: 'generates the secrets with which the services authenticate to each other',
    load: async () => (await import('@granary/operator/commands/secrets')).secrets,
  },
  settings: {
    summary: 'prints all settings of the services, with defaults and bounds',
    load: async () => (await import('@granary/operator/commands/settings')).settings,
  },
  'wal-sync': {
    summary: 'tries on the disk of a data directory how Postgres commits fastest, and keeps it',
    load: async () => (await import('@granary/operator/commands/wal-sync')).walSync,
  },
  topics: {
    summary: 'creates the topics that are missing in Kafka',
    load: async () => (await import('@granary/operator/commands/topics')).topics,
  },
};
