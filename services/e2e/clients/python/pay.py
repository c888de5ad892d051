"""Run by x402-python.test.ts: reads a URL with the official client in Python, which pays for it, with its default timeouts.

Arguments: the URL, the private key of the payer, the HTTP library (httpx or requests) and the version of x402 (1 or 2).
Prints JSON: the status, the text and the headers of the answer.
"""

import asyncio
import json
import sys

import httpx
from eth_account import Account
from x402 import x402Client, x402ClientSync
from x402.http.clients import x402_httpx_transport, x402_requests
from x402.mechanisms.evm.exact import register_exact_evm_client


class Version1(httpx.AsyncHTTPTransport):
    """A server that knows version 1 only does not send the header of version 2."""

    async def handle_async_request(self, request):
        response = await super().handle_async_request(request)
        response.headers.pop("payment-required", None)
        return response


def register(client, key):
    return register_exact_evm_client(client, Account.from_key(key))


async def read_with_httpx(url, key, version):
    inner = Version1() if version == "1" else None
    transport = x402_httpx_transport(register(x402Client(), key), inner)
    async with httpx.AsyncClient(transport=transport) as client:
        return await client.get(url)


def read_with_requests(url, key):
    return x402_requests(register(x402ClientSync(), key)).get(url)


url, key, library, version = sys.argv[1:]
if library == "httpx":
    response = asyncio.run(read_with_httpx(url, key, version))
else:
    response = read_with_requests(url, key)
headers = {name.lower(): value for name, value in response.headers.items()}
print(json.dumps({"status": response.status_code, "text": response.text, "headers": headers}))
