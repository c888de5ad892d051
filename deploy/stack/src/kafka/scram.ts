import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto';

/** The credentials of a client. */
export interface KafkaCredentials {
  username: string;
  password: string;
}

const algorithm = 'sha512';
const keyBytes = 64;
/** Kafka's minimum: the passwords here are random and long. */
const iterations = 4_096;

const hmac = (key: Buffer, text: string): Buffer => createHmac(algorithm, key).update(text).digest();

const salted = (password: string, salt: Buffer, rounds: number): Buffer =>
  pbkdf2Sync(password, salt, rounds, keyBytes, algorithm);

/** The arguments from which the storage tool creates a user's credentials, without the password itself. */
export function scramRecord({ username, password }: KafkaCredentials): string {
  const salt = randomBytes(24);
  const saltedPassword = salted(password, salt, iterations).toString('base64');
  const fields = `name=${username},iterations=${iterations},salt="${salt.toString('base64')}",saltedpassword="${saltedPassword}"`;
  return `SCRAM-SHA-512=[${fields}]`;
}

/**
 * A SCRAM-SHA-512 exchange (RFC 5802): the client's first message, and its final message for a given first message of
 * the server.
 */
export function scramClient({ username, password }: KafkaCredentials): {
  first: string;
  last(challenge: string): string;
} {
  const nonce = randomBytes(18).toString('base64');
  const bare = `n=${username},r=${nonce}`;
  return {
    first: `n,,${bare}`,
    last: (challenge) => {
      const [, serverNonce = '', salt = '', rounds = ''] = /^r=([^,]+),s=([^,]+),i=(\d+)$/.exec(challenge) ?? [];
      if (!serverNonce.startsWith(nonce)) throw new Error('The broker requires another SCRAM mechanism.');
      const withoutProof = `c=biws,r=${serverNonce}`;
      const saltedPassword = salted(password, Buffer.from(salt, 'base64'), Number(rounds));
      const clientKey = hmac(saltedPassword, 'Client Key');
      const signature = hmac(createHash(algorithm).update(clientKey).digest(), `${bare},${challenge},${withoutProof}`);
      const proof = clientKey.map((byte, index) => byte ^ signature[index]!);
      return `${withoutProof},p=${Buffer.from(proof).toString('base64')}`;
    },
  };
}
