import { ServiceError } from '@granary/shared/errors';
import type { PageResponse } from '@granary/shared/gen/granary/data/v1/PageResponse';
import type { PayRequest } from '@granary/shared/gen/granary/payments/v1/PayRequest';
import { message, newCall } from '@granary/shared/rpc/types';
import { isPaymentRefused } from '../pipeline/agent-spending';
import { clientDisconnected } from '../http/body';
import { jsonBytes, type Answer } from '../http/answer';
import type { GatewayContext } from '../pipeline/gateway-context';
import { replayedHeader } from '../pipeline/idempotency';
import {
  isPaymentRequired,
  paymentRequiredAnswer,
  purchaseOf,
  readOf,
  type PaymentRequired,
  type ReadByUrl,
} from './payment-required';
import {
  failureHeader,
  formOf,
  paidHeaders,
  pendingAnswer,
  responseHeader,
  settled,
  type RequestPayment,
} from './x402-answers';

/**
 * Answers a read that an x402 payment pays for: the payment is checked, the page read, the payment settled, and the page answered. So
 * a read that fails costs nothing, and a payment that is refused shows nothing.
 */
export async function payByPayment(
  gateway: GatewayContext,
  request: ReadByUrl,
  price: PaymentRequired,
  presented: RequestPayment,
  read: (paidUtia: string) => Promise<PageResponse>,
): Promise<Answer> {
  const { payments } = gateway.clients;
  const { paymentJson, identifier } = presented;
  const form = formOf(paymentJson);
  const purchase = await purchaseOf(gateway, readOf(request), price);
  const asked = message<PayRequest>({ purchase, paymentJson, identifier });
  try {
    const check = await payments.checkPayment(asked, request.call);
    if (check.answer && check.settlement?.payment) {
      return jsonBytes(200, check.answer, {
        ...{ ...paidHeaders, ...responseHeader(form, check.settlement.payment) },
        ...replayedHeader(true),
      });
    }
    const { json: page } = await read(check.paidUtia);
    if (request.outgoing.destroyed) throw clientDisconnected();
    // Money moves to a definite end, also when the client has gone.
    const call = newCall(request.call.requestId, gateway.config.REQUEST_TIMEOUT_MS);
    const settling = check.hasIdentifier ? { ...asked, answer: page } : asked;
    const { payment, ticketId } = await settled(presented, payments.settlePayment(settling, call));
    if (!payment) return pendingAnswer(ticketId, presented);
    return jsonBytes(200, page, { ...paidHeaders, ...responseHeader(form, payment) });
  } catch (error) {
    const refusal = isPaymentRequired(error) ? quoteInsufficient(error) : error;
    if (!isPaymentRefused(refusal)) throw error;
    const current = isPaymentRequired(error) ? error : price;
    return paymentRequiredAnswer(gateway, readOf(request), current, refusal, failureHeader(form, refusal));
  }
}

const quoteInsufficient = ({ code }: PaymentRequired): ServiceError =>
  new ServiceError(code, 'PAYMENT_REFUSED', 'The quote of the payment is for less than the read costs now', {
    details: { reason: 'quote_insufficient' },
  });
