import type { PageResponse } from '@granary/shared/gen/granary/data/v1/PageResponse';
import { maxUtia } from '@granary/shared/money/amounts';
import { clientDisconnected } from '../http/body';
import { jsonBytes, type Answer } from '../http/answer';
import type { AppCaller } from '../pipeline/access';
import { isPaymentRefused, type ReservedSpend, type Spend } from '../spending/agent-spending';
import type { GatewayContext } from '../pipeline/gateway-context';
import { replayedHeader } from '../pipeline/idempotency';
import { paymentRequiredAnswer, readOf, repeatedRequest, type ReadByUrl, type ReadForPrice } from './payment-required';
import type { Price } from './price';
import { requirePayingAgent, paymentMeansIn, requestPaymentFrom } from './payment-means';
import { paidHeaders } from './x402-answers';
import { keptBytesMax, payByPayment } from './x402-reads';

/** How often a price that has grown since it was reserved is reserved again. */
const attemptsMax = 2;

/**
 * Answers a read that costs something: with the page if an agent key, a grant or an x402 payment pays for it, else with
 * 402. Throws UNAUTHENTICATED and FORBIDDEN for the agent key, VALIDATION_FAILED for payments that contradict.
 */
export async function payForRead(
  gateway: GatewayContext,
  request: ReadByUrl,
  price: Price,
  read: ReadForPrice,
): Promise<Answer> {
  const { incoming, path } = request;
  const means = paymentMeansIn(incoming);
  // HEAD only shows the price: an answer without a body is not worth it.
  if (incoming.method === 'HEAD') return paymentRequiredAnswer(gateway, readOf(request), price);
  const payment = await requestPaymentFrom(gateway, readOf(request), price, means);
  if (payment) return payByPayment(gateway, request, price, payment, read);
  if (means.agentKey === undefined) return paymentRequiredAnswer(gateway, readOf(request), price);
  const agent = await requirePayingAgent(gateway, request, means.agentKey);
  if (agent.appId === path.app_id) return paidPage(await pageOf(read(maxUtia.toString())));
  return payByKey(gateway, request, agent, price, read);
}

async function payByKey(
  gateway: GatewayContext,
  request: ReadByUrl,
  agent: AppCaller,
  first: Price,
  read: ReadForPrice,
): Promise<Answer> {
  let price = first;
  for (let attempt = 1; ; attempt += 1) {
    let reserved: ReservedSpend | undefined;
    let grown: Price;
    try {
      reserved = await gateway.agentSpending.reserve(spendOf(agent, request, price));
      const { answer } = reserved.paidBefore ?? {};
      if (answer) return paidPage(answer, replayedHeader(true));
      const page = await read(price.amountUtia);
      if (!page.price) {
        if (request.outgoing.destroyed) throw clientDisconnected();
        await reserved.complete(page.json.length <= keptBytesMax ? page.json : undefined);
        return paidPage(page.json);
      }
      grown = page.price;
    } catch (error) {
      await reserved?.cancel();
      if (isPaymentRefused(error)) return paymentRequiredAnswer(gateway, readOf(request), price, error);
      throw error;
    }
    await reserved.cancel();
    if (attempt === attemptsMax) return paymentRequiredAnswer(gateway, readOf(request), grown);
    price = grown;
  }
}

const spendOf = (agent: AppCaller, request: ReadByUrl, price: Price): Spend => ({
  agent,
  targetAppId: request.path.app_id,
  amountUtia: price.amountUtia,
  appSharePpm: price.appSharePpm,
  requestId: request.call.requestId,
  repeats: repeatedRequest(readOf(request), agent),
});

/** The page of a read that is paid whatever it costs. */
async function pageOf(reading: Promise<PageResponse>): Promise<Buffer> {
  const { json, price } = await reading;
  if (price) throw new Error(`a read costs ${price.amountUtia} utia, more than there is`);
  return json;
}

const paidPage = (page: Buffer, headers: Record<string, string> = {}): Answer =>
  jsonBytes(200, page, { ...paidHeaders, ...headers });
