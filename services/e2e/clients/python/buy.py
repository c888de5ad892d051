"""Run by attacks/payments.test.ts: reads a URL again and again with the official client in Python, which pays for it.

Arguments: the URL, the number of seconds, and the private keys of payers who read beside each other, each with httpx
and its default timeouts. Prints JSON: the statuses of all answers, 0 for none in time, and the milliseconds of each.
"""

import asyncio
import json
import sys
import time

import httpx
from eth_account import Account
from x402 import x402Client
from x402.http.clients import x402_httpx_transport
from x402.http.clients.httpx import PaymentError
from x402.mechanisms.evm.exact import register_exact_evm_client


async def buy(url, key, until, report):
    payer = register_exact_evm_client(x402Client(), Account.from_key(key))
    async with httpx.AsyncClient(transport=x402_httpx_transport(payer)) as client:
        while time.monotonic() < until:
            began = time.monotonic()
            try:
                status = (await client.get(url)).status_code
            except (httpx.HTTPError, PaymentError):
                status = 0
            report["statuses"].append(status)
            report["latenciesMs"].append((time.monotonic() - began) * 1000)


async def main(url, seconds, *keys):
    report = {"statuses": [], "latenciesMs": []}
    until = time.monotonic() + float(seconds)
    await asyncio.gather(*(buy(url, key, until, report) for key in keys))
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
