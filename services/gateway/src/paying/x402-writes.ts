import type { PayRequest } from '@granary/shared/gen/granary/payments/v1/PayRequest';
import type { SettledPayment } from '@granary/shared/gen/granary/payments/v1/SettledPayment';
import { message, newCall } from '@granary/shared/rpc/types';
import type { Answer } from '../http/answer';
import { isPaymentRefused } from '../spending/agent-spending';
import type { GatewayContext } from '../pipeline/gateway-context';
import { paymentRequiredAnswer, purchaseOf, type PricedRequest } from './payment-required';
import type { Price } from './price';
import { isAnswer, outcomeOf, runPaid, type PaidOperation } from './priced-write';
import {
  failureHeader,
  paidHeaders,
  pendingAnswer,
  responseHeader,
  settled,
  waitForBlock,
  type RequestPayment,
} from './x402-answers';

/**
 * Does a write that an x402 payment pays for: it is tried without payment first, so that one which would be refused
 * anyway costs nothing; the payment is settled, and the write done under its ticket, so that it is done once however
 * often it is asked for. One that is refused after all leaves the payment as it is: the same request with the same
 * payment goes on.
 */
export async function payUpfront(
  gateway: GatewayContext,
  priced: PricedRequest,
  price: Price,
  presented: RequestPayment,
  operation: PaidOperation,
): Promise<Answer> {
  const { payments } = gateway.clients;
  const { request } = priced;
  const { paymentJson, form, identifier } = presented;
  const payRequest = message<PayRequest>({
    purchase: await purchaseOf(gateway, priced, price),
    paymentJson,
    identifier,
  });
  const { isStreamed, run, trial } = operation;
  try {
    const { settlement, token } = await payments.checkPayment(payRequest, request.call);
    if (!settlement?.payment) {
      if (trial.kind === 'refused') throw trial.refusal;
      if (trial.kind === 'untried' && !isStreamed) {
        const outcome = await outcomeOf(run({ isPaid: false, call: request.call }));
        if (isAnswer(outcome)) return outcome;
      }
    }
    const attempt = () => settleAndRun(gateway, request, message<PayRequest>({ ...payRequest, token }), run);
    const { ticketId, done } = await settled(presented, attempt());
    if (!done) {
      // The body of an upload is not kept.
      const isFinishedHere =
        !isStreamed && gateway.pendingWrites.add(ticketId, async () => (await attempt()).done !== undefined);
      return pendingAnswer(
        ticketId,
        presented,
        isFinishedHere ? 'then the write is done, as its task shows' : undefined,
      );
    }
    const { answer, payment } = done;
    return { ...answer, headers: { ...answer.headers, ...paidHeaders, ...responseHeader(form, payment) } };
  } catch (error) {
    if (!isPaymentRefused(error)) throw error;
    return paymentRequiredAnswer(gateway, priced, price, error, failureHeader(form, error));
  }
}

/** How far a paid write is. */
interface PaidRun {
  ticketId: string;
  /** Absent while the payment is being settled. */
  done?: { answer: Answer; payment: SettledPayment };
}

/**
 * Settles the payment and does the write. Each step is repeatable. Money moves to a definite end, and what it pays for
 * is done, also when the client has gone.
 */
async function settleAndRun(
  gateway: GatewayContext,
  request: PricedRequest['request'],
  payRequest: PayRequest,
  run: PaidOperation['run'],
): Promise<PaidRun> {
  const { clients, config } = gateway;
  const { requestId } = request.call;
  const call = () => newCall(requestId, config.REQUEST_TIMEOUT_MS);
  const waiting = newCall(requestId, config.PAYMENT_TIMEOUT_MS);
  const { payment, ticketId } = await waitForBlock(gateway, request, () =>
    clients.payments.settlePayment(payRequest, waiting),
  );
  if (!payment) return { ticketId };
  const answer = await runPaid(run, { payment: ticketId, call: call() });
  await clients.payments.grantPayment({ ticketId }, call());
  return { ticketId, done: { answer, payment } };
}
