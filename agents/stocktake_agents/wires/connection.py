"""The way to a provider: one pool of connections, requests in exact bytes, and every failure as ``ProviderError``.

The SDKs are asked for what changes with their providers: authentication, API versions and error classes. Bodies pass
through them untouched, so that what a provider said goes back to it as it came, fields that no SDK knows included.
"""

import importlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from stocktake_agents.errors import Fault, ProviderError
from stocktake_agents.provider import Deadlines
from stocktake_agents.wires.complaints import Complaint, plain, read_complaint, shorten

REDACTED = "[redacted]"
SHORTEST_SECRET = 8  # characters; a shorter key is a local server's placeholder, perhaps an ordinary word
_CLIENTS = {"anthropic": "AsyncAnthropic", "openai": "AsyncOpenAI"}
_UNSENT = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol", "LocalProtocolError")
_CREDENTIALS = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}|(?<=://)[^/\s@]+(?=@)", re.IGNORECASE)


class Refused(ProviderError):
    """A server answered, and its answer is an error.

    Attributes:
        complaint: what it said.
    """

    def __init__(self, complaint: Complaint, after: float | None, billed: bool) -> None:
        super().__init__(str(complaint), complaint.fault, after, billed)
        self.complaint = complaint


@dataclass(frozen=True)
class Answer:
    """The body of a successful answer, a JSON object, and the provider's name for the request."""

    body: dict[str, Any]
    request_id: str | None


class Connection:
    """An SDK's client with its own retries, redirects and environment variables out of the way."""

    def __init__(
        self,
        sdk: str,
        base_url: str,
        key: str,
        deadlines: Deadlines,
        connections: int,
        headers: Mapping[str, str] | None = None,
        transport: Any = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            sdk: "anthropic" or "openai".
            base_url: where requests go, without credentials; given always, so that no environment variable can send
                them elsewhere.
            key: the API key.
            deadlines: ``connect`` and ``idle`` are kept here, the others by the caller.
            connections: the most requests at a time.
            headers: sent with every request.
            transport: an httpx2 transport in the place of the network.
        """
        import httpx2

        self._sdk = importlib.import_module(sdk)
        self._base_url = base_url
        self._response = httpx2.Response
        self._secrets = sorted(_spellings(key), key=len, reverse=True) if len(key) >= SHORTEST_SECRET else []
        timeout = httpx2.Timeout(deadlines.idle, connect=deadlines.connect)
        client = self._sdk.DefaultAsyncHttpxClient(
            timeout=timeout,
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
            follow_redirects=False,
            **({} if transport is None else {"transport": transport}),
        )
        self._client = getattr(self._sdk, _CLIENTS[sdk])(
            api_key=key,
            base_url=base_url,
            timeout=timeout,
            max_retries=0,
            default_headers=dict(headers or {}),
            http_client=client,
        )

    async def post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
        """Sends a JSON object and reads one back.

        Raises:
            Refused: the answer is an error, be its status 200.
            ProviderError: there was no answer, or none in JSON.
        """
        # ASCII, because half of a surrogate pair, which a model may well write, has no bytes in UTF-8.
        content = json.dumps(body, separators=(",", ":")).encode("ascii")
        options = {"headers": {"Content-Type": "application/json", **(headers or {})}}
        return await self._request(self._client.post, path, content=content, options=options)

    async def get(self, path: str) -> Answer:
        """Reads a JSON object; raises like ``post``."""
        return await self._request(self._client.get, path)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def _request(self, method: Any, path: str, **arguments: Any) -> Answer:
        # The error is raised outside of the except clause: its context would be the SDK's, which shows the key.
        failure: ProviderError
        try:
            response = await method(path, cast_to=self._response, **arguments)
        except self._sdk.APIStatusError as error:
            complaint = read_complaint(error.response.status_code, self.redact(error.response.text))
            failure = Refused(complaint, _wait(error.response.headers), billed=False)
        except self._sdk.APIConnectionError as error:
            failure = self._lost(error)
        else:
            return self._read(response)
        raise failure

    def _read(self, response: Any) -> Answer:
        text = self.redact_key(response.text)
        try:
            body = json.loads(text, parse_constant=_finite, parse_float=_finite)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise no_answer(f"HTTP {response.status_code} without a JSON object: {shorten(self.redact(plain(text)))}")
        if body.get("error"):
            complaint = read_complaint(response.status_code, self.redact(text))
            billed = complaint.fault in (Fault.TRANSIENT, Fault.REJECTED)
            raise Refused(complaint, _wait(response.headers), billed)
        names = (response.headers.get("request-id"), response.headers.get("x-request-id"), body.get("id"))
        return Answer(body, next((name for name in names if isinstance(name, str)), None))

    def _lost(self, error: Exception) -> ProviderError:
        cause = error.__cause__ or error
        sent = type(cause).__name__ not in _UNSENT
        what = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
        if isinstance(error, self._sdk.APITimeoutError):
            return ProviderError(
                f"no answer in time from {self._base_url} ({self.redact(what)})", Fault.TIMEOUT, billed=sent
            )
        return ProviderError(
            f"the connection to {self._base_url} failed ({self.redact(what)})", Fault.TRANSIENT, billed=sent
        )

    def redact_key(self, text: str) -> str:
        """A text without the key, however JSON may spell it."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return text

    def redact(self, text: str) -> str:
        """A text without the key, and without anything that looks like credentials."""
        return _CREDENTIALS.sub(REDACTED, self.redact_key(text))


def no_answer(message: str) -> ProviderError:
    """An answer that came and holds nothing to go on with; its tokens may be billed."""
    return ProviderError(message, Fault.TRANSIENT, billed=True)


def _spellings(key: str) -> set[str]:
    quoted = json.dumps(key)[1:-1]
    return {key, quoted, quoted.replace("/", "\\/")}


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is no number in JSON")
    return value


def _wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, told in milliseconds, in seconds or as a date; None where it is silent."""
    try:
        if "retry-after-ms" in headers:
            seconds = float(headers["retry-after-ms"]) / 1_000
        else:
            seconds = float(headers.get("retry-after", "nan"))
    except ValueError:
        seconds = _until(headers.get("retry-after", ""))
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _until(date: str) -> float:
    """Seconds from now to an HTTP date; not a number for anything else."""
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return math.nan
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
