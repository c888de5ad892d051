import { GenericAuthorization, type Grant } from 'cosmjs-types/cosmos/authz/v1beta1/authz';
import { SendAuthorization } from 'cosmjs-types/cosmos/bank/v1beta1/authz';
import { MsgSend } from 'cosmjs-types/cosmos/bank/v1beta1/tx';
import type { Timestamp } from 'cosmjs-types/google/protobuf/timestamp';
import { grantMissing, type ChainGrants } from '../chain/chain-grants';
import { orUnavailable } from '../chain/chain-unavailable';
import type { CometNodes } from './comet-nodes';

export interface CosmosGrantsOptions {
  nodes: CometNodes;
  denom: string;
  /** The address of the broker. */
  grantee: string;
  /** The address of the hot wallet. A new grant must allow sends to it when no other recipient is known. */
  hotWallet: string;
}

/**
 * The grants on a real chain, which their granters make by a MsgGrant and end by a MsgRevoke: here they are looked at
 * only.
 */
export function cosmosGrants({ nodes, denom, grantee, hotWallet }: CosmosGrantsOptions): ChainGrants {
  const find = async (granter: string, recipient: string): Promise<Allowed | string> => {
    const grants = await orUnavailable(nodes.ask((node) => node.grants(granter, grantee)));
    const ofSends = grants.find(isForSends);
    return ofSends ? allowedBy(ofSends, denom, recipient) : 'there is none';
  };
  return {
    grantee,
    async look(granter, recipient = hotWallet) {
      const allowance = await find(granter, recipient);
      return {
        cover: async (_, { amount, until }) => {
          const problem = typeof allowance === 'string' ? allowance : problemOf(allowance, amount, until);
          if (problem === undefined) return;
          throw grantMissing(
            `The chain has no grant of ${granter} to ${grantee} that covers ${amount} ${denom} until ` +
              `${until.toISOString()}: ${problem}. Send a MsgGrant with a SendAuthorization first`,
          );
        },
      };
    },
    reduce: async () => {},
    async allowance(granter, recipient) {
      const allowance = await find(granter, recipient);
      if (typeof allowance === 'string' || (allowance.until && allowance.until.getTime() <= Date.now())) return 0n;
      return allowance.amount;
    },
    spendable: (granter) => orUnavailable(nodes.ask((node) => node.spendable(granter, denom))),
  };
}

/** Undefined: any amount, or for ever. */
interface Allowed {
  amount: bigint | undefined;
  until: Date | undefined;
}

/** The chain has one for each kind of message. */
const isForSends = ({ authorization }: Grant): boolean =>
  authorization?.typeUrl === SendAuthorization.typeUrl ||
  (authorization?.typeUrl === GenericAuthorization.typeUrl &&
    GenericAuthorization.decode(authorization.value).msg === MsgSend.typeUrl);

/** The amount that a grant allows and when the grant ends, or the reason why it allows nothing. */
function allowedBy({ authorization, expiration }: Grant, denom: string, recipient: string): Allowed | string {
  const until = expiration && dateOf(expiration);
  if (authorization!.typeUrl === GenericAuthorization.typeUrl) return { amount: undefined, until };
  const { spendLimit, allowList } = SendAuthorization.decode(authorization!.value);
  if (allowList.length > 0 && !allowList.includes(recipient)) return `its allow_list lacks ${recipient}`;
  return { amount: BigInt(spendLimit.find((coin) => coin.denom === denom)?.amount ?? '0'), until };
}

function problemOf(allowed: Allowed, amount: bigint, until: Date): string | undefined {
  if (allowed.until && allowed.until.getTime() < until.getTime()) return 'it ends earlier';
  if (allowed.amount === undefined || allowed.amount >= amount) return undefined;
  return `its spend_limit is ${allowed.amount}`;
}

const dateOf = ({ seconds, nanos }: Timestamp): Date => new Date(Number(seconds) * 1_000 + nanos / 1_000_000);
