import { ServiceError } from '@granary/shared/errors';
import type { PayRequest } from '@granary/shared/gen/granary/payments/v1/PayRequest';
import { message } from '@granary/shared/rpc/types';
import { isPaymentRefused } from '../spending/agent-spending';
import { clientDisconnected } from '../http/body';
import { jsonBytes, type Answer } from '../http/answer';
import type { GatewayContext } from '../pipeline/gateway-context';
import { replayedHeader } from '../pipeline/idempotency';
import { paymentRequiredAnswer, purchaseOf, readOf, type ReadByUrl, type ReadForPrice } from './payment-required';
import type { Price } from './price';
import {
  failureHeader,
  paidHeaders,
  pendingRead,
  responseHeader,
  settled,
  waitForBlock,
  type RequestPayment,
} from './x402-answers';

/** A longer answer is not kept for a repetition. */
export const keptBytesMax = 1_048_576;

/**
 * Answers a read that an x402 payment pays for: the payment is checked, the page read, the payment settled, and the
 * page answered. So a read that fails costs nothing, and a payment that is refused shows nothing.
 */
export async function payByPayment(
  gateway: GatewayContext,
  request: ReadByUrl,
  price: Price,
  presented: RequestPayment,
  read: ReadForPrice,
): Promise<Answer> {
  const { payments } = gateway.clients;
  const { call } = request;
  const { paymentJson, form, identifier } = presented;
  const purchase = await purchaseOf(gateway, readOf(request), price);
  const payRequest = message<PayRequest>({ purchase, paymentJson, identifier });
  try {
    const check = await payments.checkPayment(payRequest, call);
    if (check.answer && check.settlement?.payment) {
      return paidPage(check.answer, responseHeader(form, check.settlement.payment), true);
    }
    const { json: page, price: grown } = await read(check.paidUtia);
    if (grown) {
      const refusal = quoteInsufficient();
      return await paymentRequiredAnswer(gateway, readOf(request), grown, refusal, failureHeader(form, refusal));
    }
    if (request.outgoing.destroyed) throw clientDisconnected();
    // While the client waits: payments settles it also when the client has gone, and then answers the same request.
    const waiting = { ...call, deadlineMs: Date.now() + gateway.config.PAYMENT_TIMEOUT_MS };
    const answer = page.length <= keptBytesMax ? page : undefined;
    const settling = message<PayRequest>({ ...payRequest, token: check.token, answer });
    const settlement = await settled(
      presented,
      waitForBlock(gateway, request, () => payments.settlePayment(settling, waiting)),
    );
    if (!settlement.payment) throw pendingRead(settlement.ticketId, presented);
    const { answer: first = page } = settlement;
    return paidPage(first, responseHeader(form, settlement.payment), first !== page);
  } catch (error) {
    if (!isPaymentRefused(error)) throw error;
    return paymentRequiredAnswer(gateway, readOf(request), price, error, failureHeader(form, error));
  }
}

const paidPage = (page: Buffer, headers: Record<string, string>, isReplayed: boolean): Answer =>
  jsonBytes(200, page, { ...paidHeaders, ...headers, ...replayedHeader(isReplayed) });

const quoteInsufficient = (): ServiceError =>
  new ServiceError(
    'FAILED_PRECONDITION',
    'PAYMENT_REFUSED',
    'The quote of the payment is for less than the read costs now',
    {
      details: { reason: 'quote_insufficient' },
    },
  );
