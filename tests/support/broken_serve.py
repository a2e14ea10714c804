"""`python -m tests.support.broken_serve MISTAKE ...` serves as `python -m gateway.api ...` does, with one mistake."""

import sys
from typing import Any
from unittest import mock

from gateway import api, app, relay, verdict
from gateway.cli import serve_main
from gateway.ledger import Ledger, OnCrash
from llmkit import client
from llmkit.client import OpenAICompatClient

_ENDLESS = 1 << 40
_refuse = client._refusal


def _client_without_limits(*arguments: Any, **options: Any) -> OpenAICompatClient:
    return OpenAICompatClient(*arguments, **options | {"max_event_bytes": _ENDLESS, "max_answer_bytes": _ENDLESS})


class _ForgetsTheDead(Ledger):
    """Gives the holds of a dead process back, whatever the configuration says."""

    async def open(self, *, pid: int, machine_boot: str, on_crash: OnCrash = OnCrash.VOID) -> int:
        return await super().open(pid=pid, machine_boot=machine_boot, on_crash=OnCrash.VOID)


MISTAKES: dict[str, list[Any]] = {
    "reads-without-end": [
        mock.patch.object(app, "OpenAICompatClient", _client_without_limits),
        mock.patch.object(relay, "MOST_HELD_BYTES", _ENDLESS),
    ],
    "forgets-the-dead": [mock.patch.object(app, "Ledger", _ForgetsTheDead)],
    "repeats-secrets": [
        mock.patch.object(verdict, "without_secrets", str),
        mock.patch.object(api, "without_secrets", str),
        mock.patch.object(
            client, "_refusal", lambda head, body, **facts: _refuse(head, body, **facts | {"api_key": None})
        ),
    ],
}


def program(mistake: str) -> tuple[str, ...]:
    """What an interpreter runs to serve with a mistake."""
    return ("-m", "tests.support.broken_serve", mistake)


if __name__ == "__main__":
    for patch in MISTAKES[sys.argv[1]]:
        patch.start()
    sys.exit(serve_main(sys.argv[2:]))
