import { z } from 'zod';
import { parseUtia, utiaToNumber } from '@granary/shared/money/amounts';
import { utiaSchema } from '../validation/schemas';

export const currency = 'utia';
export const currencySchema = z.literal(currency).describe('The unit of all amounts: 1 TIA = 1,000,000 utia');

/** An amount, which is text on the wire, as a JSON integer. */
export const utia = (text: string) => utiaToNumber(parseUtia(text));

export const balances = {
  balance: utiaSchema.describe('All that the application has, in utia'),
  locked_balance: utiaSchema.describe('The part that is never paid out, in utia'),
  pending_payouts: utiaSchema.describe('The part that is on its way out, in utia'),
  available_balance: utiaSchema.describe('balance − locked_balance − pending_payouts, never negative, in utia'),
};
export const exampleBalances = { balance: 0, locked_balance: 0, pending_payouts: 0, available_balance: 0 };
