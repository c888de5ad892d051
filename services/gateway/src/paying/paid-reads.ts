import type { PageResponse } from '@granary/shared/gen/granary/data/v1/PageResponse';
import { maxUtia } from '@granary/shared/money';
import { clientDisconnected } from '../http/body';
import { jsonBytes, type Answer } from '../http/answer';
import type { AppCaller } from '../pipeline/access';
import { isPaymentRefused, type ReservedSpend, type Spend } from '../spending/agent-spending';
import type { GatewayContext } from '../pipeline/gateway-context';
import { replayedHeader } from '../pipeline/idempotency';
import {
  amountOf,
  isPaymentRequired,
  paymentRequiredAnswer,
  readOf,
  repeatedRequest,
  shareOf,
  type PaymentRequired,
  type ReadByUrl,
} from './payment-required';
import { agentOf, paymentMeansIn, paymentWith } from './payment-means';
import { paidHeaders } from './x402-answers';
import { keptBytesMax, payByPayment } from './x402-reads';

/** How often a price that has grown since it was reserved is reserved again. */
const attemptsMax = 2;

/**
 * Answers a read that costs something: with the page if an agent key, a grant or an x402 payment pays for it, else with 402. `read` reads the
 * page for what was paid. Throws UNAUTHENTICATED and FORBIDDEN for the agent key, VALIDATION_FAILED for payments that contradict.
 */
export async function payForRead(
  gateway: GatewayContext,
  request: ReadByUrl,
  required: PaymentRequired,
  read: (paidUtia: string) => Promise<PageResponse>,
): Promise<Answer> {
  const { incoming, path } = request;
  const means = paymentMeansIn(incoming);
  // What has no body is not worth its price: HEAD only shows it.
  if (incoming.method === 'HEAD') return paymentRequiredAnswer(gateway, readOf(request), required);
  const payment = await paymentWith(gateway, readOf(request), required, means);
  if (payment) return payByPayment(gateway, request, required, payment, read);
  if (means.agentKey === undefined) return paymentRequiredAnswer(gateway, readOf(request), required);
  const agent = await agentOf(gateway, request, means.agentKey);
  if (agent.appId === path.app_id) return paidPage(await read(maxUtia.toString()));
  return payByKey(gateway, request, agent, required, read);
}

async function payByKey(
  gateway: GatewayContext,
  request: ReadByUrl,
  agent: AppCaller,
  required: PaymentRequired,
  read: (paidUtia: string) => Promise<PageResponse>,
): Promise<Answer> {
  let price = required;
  for (let attempt = 1; ; attempt += 1) {
    let reserved: ReservedSpend | undefined;
    try {
      reserved = await gateway.agentSpending.reserve(spendOf(agent, request, price));
      const { answer } = reserved.paidBefore ?? {};
      if (answer) return paidPage({ json: answer }, replayedHeader(true));
      const page = await read(amountOf(price));
      if (request.outgoing.destroyed) throw clientDisconnected();
      await reserved.complete(page.json.length <= keptBytesMax ? page.json : undefined);
      return paidPage(page);
    } catch (error) {
      await reserved?.cancel();
      if (isPaymentRefused(error)) return paymentRequiredAnswer(gateway, readOf(request), price, error);
      if (!isPaymentRequired(error)) throw error;
      if (attempt === attemptsMax) return paymentRequiredAnswer(gateway, readOf(request), error);
      price = error;
    }
  }
}

const spendOf = (agent: AppCaller, request: ReadByUrl, price: PaymentRequired): Spend => ({
  agent,
  targetAppId: request.path.app_id,
  amountUtia: amountOf(price),
  appSharePpm: shareOf(price),
  requestId: request.call.requestId,
  repeats: repeatedRequest(readOf(request), agent),
});

const paidPage = ({ json: page }: Pick<PageResponse, 'json'>, headers: Record<string, string> = {}): Answer =>
  jsonBytes(200, page, { ...paidHeaders, ...headers });
