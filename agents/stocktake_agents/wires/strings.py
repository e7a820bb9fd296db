"""Model strings: ``anthropic/NAME``, ``openai/NAME``, ``openrouter/VENDOR/NAME``, ``local/NAME``."""

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from stocktake_agents.errors import UsageError
from stocktake_agents.prices import Price
from stocktake_agents.provider import Agent, Deadlines, Service, Wire
from stocktake_agents.wires.wire import ModelWire, Setup

MAX_OUTPUT_TOKENS = 16_000
MAX_OUTPUT_TOKENS_LOCAL = 4_096  # of a context which has to hold the conversation as well
_PLACEHOLDER = "none"  # servers of one's own want a key and ignore it


@dataclass(frozen=True)
class _Provider:
    """What is particular about a provider: its SDK, where it lives, where its key is kept, its words for effort."""

    sdk: str
    key: str
    base_url: str | None
    efforts: tuple[str, ...]


_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
PROVIDERS = {
    "anthropic": _Provider("anthropic", "ANTHROPIC_API_KEY", "https://api.anthropic.com", _EFFORTS[2:]),
    "openai": _Provider("openai", "OPENAI_API_KEY", "https://api.openai.com/v1", _EFFORTS),
    "openrouter": _Provider("openai", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1", _EFFORTS),
    "local": _Provider("openai", "LOCAL_API_KEY", None, ()),
}
PREFIXES = tuple(f"{provider}/" for provider in PROVIDERS)
# How the router's own pages name the application. The address is one that is reserved for leading nowhere.
_ROUTER_HEADERS = {"HTTP-Referer": "https://stocktake-jax.invalid", "X-Title": "STOCKTAKE-JAX"}


def api_agent(
    model: str,
    *,
    effort: str | None = None,
    temperature: float | None = None,
    base_url: str | None = None,
    max_output_tokens: int | None = None,
    openrouter_provider: str | None = None,
    prices: Mapping[str, Price],
) -> Agent:
    """The agent that a model string names.

    The key is read from the environment, here to see that there is one and again when a wire is opened; nothing keeps
    it in between.

    Args:
        model: ``anthropic/NAME``, ``openai/NAME``, ``openrouter/VENDOR/NAME`` or ``local/NAME``.
        effort: how hard to think; None leaves it to the model.
        temperature: sampling temperature, 0 to 2; None sends none.
        base_url: where requests go instead; needed for ``local/``.
        max_output_tokens: the most tokens of one answer.
        openrouter_provider: the only hosts which may serve the model, separated by commas.
        prices: by model string.

    Raises:
        UsageError: the string, a setting, the SDK or the key is wrong or missing.
    """
    provider, _, name = model.partition("/")
    known = PROVIDERS.get(provider)
    if known is None or not name or name != name.strip() or (provider == "openrouter" and "/" not in name.strip("/")):
        raise UsageError(
            f"{model!r} is no model: give anthropic/NAME, openai/NAME, openrouter/VENDOR/NAME or local/NAME."
        )
    if importlib.util.find_spec(known.sdk) is None:
        raise UsageError(f"{model} needs the {known.sdk} SDK: pip install 'stocktake-jax[llm]'.")
    if effort is not None and effort not in known.efforts:
        right = f"give one of {', '.join(known.efforts)}" if known.efforts else "leave it out"
        raise UsageError(f"effort {effort!r} means nothing to {provider}: {right}.")
    if temperature is not None and not 0 <= temperature <= 2:
        raise UsageError(f"temperature {temperature} cannot be: give 0 to 2, or leave it out.")
    if max_output_tokens is not None and max_output_tokens < 1:
        raise UsageError(f"max output tokens {max_output_tokens} cannot be: give 1 or more.")
    hosts = tuple(host.strip() for host in (openrouter_provider or "").split(",") if host.strip())
    if openrouter_provider is not None and (provider != "openrouter" or not hosts):
        raise UsageError("an OpenRouter provider pins the hosts of openrouter/VENDOR/NAME: name one, or leave it out.")
    if base_url is None and known.base_url is None:
        raise UsageError(f"{model} needs a base URL: give --base-url, such as http://localhost:8000/v1.")
    _key(known)

    most = MAX_OUTPUT_TOKENS_LOCAL if provider == "local" else MAX_OUTPUT_TOKENS
    setup = Setup(
        provider=provider,
        model=name,
        base_url=_checked_url(base_url, provider) if base_url is not None else str(known.base_url),
        max_output_tokens=max_output_tokens or most,
        effort=effort,
        temperature=None if temperature is None else float(temperature),
        hosts=hosts,
    )

    def connect(deadlines: Deadlines, connections: int) -> Wire:
        return open_wire(setup, deadlines, connections)

    service = Service(
        provider=provider,
        model=name,
        base_url=setup.base_url,
        connect=connect,
        max_output_tokens=setup.max_output_tokens,
        price=prices.get(model),
        free=provider == "local",
        local=provider == "local",
    )
    return Agent(model=model, settings=_settings(setup), service=service, reads=True)


def open_wire(setup: Setup, deadlines: Deadlines, connections: int, transport: Any = None) -> ModelWire:
    """Opens a wire with the key that the environment holds now.

    Args:
        setup: what to ask of which model.
        deadlines: how long to wait.
        connections: the most requests at a time.
        transport: an httpx2 transport in the place of the network.

    Raises:
        UsageError: there is no key.
    """
    from stocktake_agents.wires.anthropic import AnthropicWire
    from stocktake_agents.wires.chat import ChatWire
    from stocktake_agents.wires.connection import Connection
    from stocktake_agents.wires.responses import ResponsesWire

    known = PROVIDERS[setup.provider]
    headers = _ROUTER_HEADERS if setup.provider == "openrouter" else {}
    connection = Connection(known.sdk, setup.base_url, _key(known), deadlines, connections, headers, transport)
    wires: dict[str, type[ModelWire]] = {"anthropic": AnthropicWire, "openai": ResponsesWire}
    return wires.get(setup.provider, ChatWire)(setup, connection)


def _settings(setup: Setup) -> dict[str, Any]:
    """What goes into the agent's hash: whatever is set, and the base URL where it is not the provider's own."""
    settings = {key: value for key, value in asdict(setup).items() if value not in (None, ())}
    if settings["base_url"] == PROVIDERS[setup.provider].base_url:
        del settings["base_url"]
    return settings | ({"hosts": list(setup.hosts)} if setup.hosts else {})


def _key(known: _Provider) -> str:
    """The key out of the environment. No message shows any of it."""
    # Headers from the environment would change requests, or send another key, and no manifest would tell.
    extra = f"{known.sdk.upper()}_CUSTOM_HEADERS"
    if os.environ.get(extra):
        raise UsageError(f"{extra} changes requests unseen: unset it.")
    key = os.environ.get(known.key, "").strip()
    if not key and known.base_url is None:
        return _PLACEHOLDER
    if not key:
        raise UsageError(f"there is no API key: set {known.key}.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{known.key} holds characters that no key has: copy it again.")
    return key


def _checked_url(base_url: str, provider: str) -> str:
    wrong = "the base URL must be like http://localhost:8000/v1: a scheme, a host and a path, no more."
    try:
        url = urlsplit(base_url.strip())
        port = url.port
    except ValueError:
        raise UsageError(wrong) from None  # its message repeats parts of the URL
    if url.username is not None or url.password is not None:
        raise UsageError(f"the base URL holds credentials: leave them out and set {PROVIDERS[provider].key}.")
    if url.scheme not in ("http", "https") or not url.hostname or port == 0 or url.query or url.fragment:
        raise UsageError(wrong)
    if provider == "anthropic" and url.path.rstrip("/").endswith("/v1"):
        raise UsageError("the base URL of anthropic/ ends before /v1: leave that out.")
    return base_url.strip().rstrip("/")
