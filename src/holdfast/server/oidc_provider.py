"""The requests to an OpenID Connect provider: one deadline for those of a step, a limit of size, and no redirects.

Authlib and httpx2 make the requests. Their timeouts are for each read alone, so a provider that sends a byte now and then would
keep a thread for ever. A step is therefore a coroutine that is cancelled at its deadline.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import httpx2
from authlib.integrations.httpx_client import AsyncOAuth2Client

from holdfast.core import limits
from holdfast.errors import Unavailable

T = TypeVar("T")
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}


class ProviderRequests:
    """Runs the steps of a sign-in at one provider. `options` are those of Authlib's client."""

    def __init__(self, seconds: float, **options: str) -> None:
        self._tls = ssl.create_default_context()
        self._seconds = seconds
        self._options = options

    def run(self, step: Callable[[AsyncOAuth2Client], Coroutine[Any, Any, T]]) -> T:
        """Return what a step returns. Raise Unavailable if the provider does not answer as it should, or not in time."""
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(self._run(step))
        except httpx2.HTTPStatusError as error:
            raise Unavailable(f"the provider answered with status {error.response.status_code}", outcome="none") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RecursionError):
            raise Unavailable("the provider cannot be reached, or its answer cannot be read", outcome="none") from None
        finally:
            loop.close()  # it does not wait for the thread in which the system resolves a name

    async def _run(self, step: Callable[[AsyncOAuth2Client], Coroutine[Any, Any, T]]) -> T:
        hooks = {"response": [_check_answer]}
        options = {**self._options, "verify": self._tls, "timeout": self._seconds, "headers": _HEADERS, "event_hooks": hooks}
        async with asyncio.timeout(self._seconds), AsyncOAuth2Client(code_challenge_method="S256", **options) as session:
            return await step(session)


async def fetch(session: AsyncOAuth2Client, address: str) -> dict[str, Any]:
    """Return the JSON object at an address of the provider."""
    found = json.loads((await session.request("GET", address, withhold_token=True)).content)
    if not isinstance(found, dict):
        raise Unavailable("the provider's answer is not a JSON object", outcome="none")
    return found


async def _check_answer(answer: httpx2.Response) -> None:
    """Raise HTTPStatusError for an answer that is no success, also for a redirect. Limit the size of others."""
    answer.raise_for_status()
    answer.headers.pop("Content-Encoding", None)  # it was asked for as it is, and could become large
    assert isinstance(answer.stream, httpx2.AsyncByteStream)
    answer.stream = _LimitedStream(answer.stream)


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > limits.OIDC_ANSWER_BYTES_MAX:
                raise httpx2.ReadError("the answer is too large")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
