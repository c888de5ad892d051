import type { ChainEvent } from './comet-node';

/** Money of one denomination that a transaction moved, without the fee. */
export interface TransferEvent {
  eventIndex: number;
  sender: string;
  recipient: string;
  amount: bigint;
}

/** Before 0.37, CometBFT wrote keys and values in base64. */
const encode = (text: string): string => Buffer.from(text).toString('base64');
const decode = (text: string): string => Buffer.from(text, 'base64').toString();

/**
 * The transfers among the events of a transaction that succeeded. The bank module writes one event for each; that of
 * MsgMultiSend names no sender, who is the one whose money was spent before it. The fee is a transfer too, to the
 * account that collects fees.
 */
export function readTransfers(events: readonly ChainEvent[], denom: string, feeCollector: string): TransferEvent[] {
  const transfers: TransferEvent[] = [];
  let spender = '';
  for (const [eventIndex, event] of events.entries()) {
    if (event.type === 'coin_spent') spender = attribute(event, 'spender') ?? '';
    if (event.type !== 'transfer') continue;
    const recipient = attribute(event, 'recipient') ?? '';
    const sender = attribute(event, 'sender') ?? spender;
    const amount = amountOf(attribute(event, 'amount') ?? '', denom);
    if (amount > 0n && recipient !== feeCollector) transfers.push({ eventIndex, sender, recipient, amount });
  }
  return transfers;
}

function attribute({ attributes }: ChainEvent, key: string): string | undefined {
  const plain = attributes.find((each) => each.key === key)?.value;
  if (plain != null) return plain;
  const encoded = attributes.find((each) => each.key === encode(key))?.value;
  return encoded == null ? undefined : decode(encoded);
}

/** The amount of one denomination in a list such as `5ibc/AB,70utia`. Amounts of the Cosmos SDK have up to 256 bits. */
function amountOf(coins: string, denom: string): bigint {
  for (const coin of coins.split(',')) {
    const [, digits, name] = /^(\d{1,78})(.+)$/.exec(coin.trim()) ?? [];
    if (name === denom) return BigInt(digits!);
  }
  return 0n;
}
