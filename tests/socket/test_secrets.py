"""Canaries: keys, prompts and answers are planted, and looked for wherever they do not belong."""

import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any

from gateway.context import Caller
from gateway.health import LONG_PAUSE_S
from gateway.keys import hash_key
from gateway.providers import ProviderAnswer, UpstreamCall
from tests.support.front import (
    CHAT,
    PROVIDER_KEY,
    ROLE,
    Answering,
    Front,
    FrontCase,
    LiveFront,
    Reply,
    ShiftedClock,
    completion,
    event,
    stream,
    whole,
    words,
)
from tests.support.scripted_upstream import Peer, Request
from tests.support.world import chat

PROMPT = "PROMPTCANARY0123456789"
ANSWER = "ANSWERCANARY0123456789"
UNKNOWN_KEY = "sk-UNKNOWNMIDDLEPART0001"
PROVIDER_MIDDLE = "PROVIDERCANARY0001"


def quoting(status: str) -> Answering:
    """Refuses as `status`, and quotes all that it was sent in every field of its error."""

    def reply(peer: Peer, request: Request) -> None:
        quote = f"Incorrect API key provided: {request.get('authorization')} for {request.body.decode()}"
        error = {"message": quote, "type": quote, "code": quote, "param": request.get("authorization")}
        whole({"error": error}, status=status, headers=f"x-debug: {PROVIDER_KEY}\r\n")(peer, request)

    return reply


def failing_stream(peer: Peer, request: Request) -> None:
    """Fails after the first word, with an error that quotes the key."""
    error = json.dumps({"error": {"message": f"{request.get('authorization')} {PROMPT}", "code": PROVIDER_KEY}})
    stream(ROLE, event({"content": ANSWER}), error.encode())(peer, request)


class Exploding:
    """A provider with a bug, whose exception holds everything it should not."""

    name = "up"

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        raise ValueError(f"{PROVIDER_KEY} {call.body.decode()} {ANSWER}")


class SecretsCase(FrontCase):
    """Collects everything that leaves a gateway, and what it writes."""

    def setUp(self) -> None:
        self.replies: list[Reply] = []
        self.printed = io.StringIO()
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.enter_context(contextlib.redirect_stdout(self.printed))
        stack.enter_context(contextlib.redirect_stderr(self.printed))

    def chat(self, front: Front, key: str | None = "", **fields: Any) -> Reply:
        """A chat whose prompt is the canary."""
        return self.kept(front.chat(key=key, text=PROMPT, **fields))

    def kept(self, reply: Reply) -> Reply:
        """An answer to look through."""
        self.replies.append(reply)
        return reply

    def left_by(self, front: Front) -> Iterator[tuple[str, str]]:
        """What an operator, a tracer or the owner of a stolen disk sees, place by place."""
        yield "log", front.log.getvalue() + self.printed.getvalue()
        yield "rows", json.dumps(front.world.rows())
        yield "usage", json.dumps(front.world.run("usage"))
        yield "keys", json.dumps(front.world.run("keys.list"))
        yield "holds", json.dumps(front.world.run("ledger.holds"))
        yield "spans", repr(front.spans.records())
        for path in sorted(front.world.path.iterdir()):
            yield path.name, path.read_bytes().decode("latin-1")

    def assert_nowhere(self, front: Front, *secrets: str) -> None:
        """None of `secrets` is in what was kept, in any header, or in what is left."""
        places = list(self.left_by(front))
        places += [(f"answer {number}", f"{reply.headers} {reply.body!r}") for number, reply in enumerate(self.replies)]
        for place, text in places:
            for secret in secrets:
                self.assertNotIn(secret, text, place)


class KeySecretTest(SecretsCase):
    def test_no_key_is_ever_repeated(self) -> None:
        """Not in a refusal, a row, a span, the log or the ledger's file, which holds the digest of each."""
        front = self.live(whole(), clock=(clock := ShiftedClock()))
        make = front.world.run
        blocked, over = make("keys.create", tenant="acme"), make("keys.create", tenant="acme", budget_usd="0")
        expired = make("keys.create", tenant="acme", expires_in_s=60)
        make("keys.block", id=blocked["id"])
        rotated = make("keys.rotate", id=blocked["id"])
        clock.shift_s = 60
        keys = [front.key, *(made["key"] for made in (blocked, over, expired, rotated))]
        statuses = [self.chat(front, key).status for key in (*keys, UNKNOWN_KEY, None)]
        self.assertEqual(statuses, [200, 401, 402, 401, 401, 401, 401])
        for path in f"/v1/models?api_key={front.key}", f"/v1/models?key={front.key}":
            self.assertEqual(self.kept(front.ask("GET", path, key=None)).status, 401)
        self.kept(front.ask("POST", CHAT, {**chat(PROMPT), "n": 0}))
        secrets = [key.rpartition("-")[2] for key in keys]
        self.assert_nowhere(
            front, *secrets, *(secret[10:30] for secret in secrets), "UNKNOWNMIDDLEPART", PROVIDER_MIDDLE
        )
        book = "".join(text for place, text in self.left_by(front) if place.startswith("ledger.db"))
        for key in keys:
            self.assertIn(hash_key(key), book)

    def test_a_key_that_was_sent_as_something_else_is_not_repeated(self) -> None:
        """As a model, a path, or the name of a field: an error ends up in the logs of whoever gets it."""
        front = self.live(whole())
        self.assertEqual(self.kept(front.ask("GET", f"/v1/{front.key}")).status, 404)
        self.assertEqual(self.kept(front.ask("GET", f"/v1/models/{front.key}")).status, 404)
        self.assertEqual(self.kept(front.chat(model=front.key)).status, 404)
        self.assertEqual(
            self.kept(front.ask("POST", CHAT, f'{{"{front.key}": 1, "{front.key}": 2}}'.encode())).status, 400
        )
        self.assert_nowhere(front, front.key.rpartition("-")[2])


class UpstreamSecretTest(SecretsCase):
    def test_a_secret_that_an_upstream_quotes_ends_at_the_gateway(self) -> None:
        """Whatever status it has, and whichever field of the error it is in."""
        statuses = ("401 No", "403 No", "404 No", "429 Slow", "500 Oops", "400 Bad", "422 Bad", "413 Big")
        front = self.live(*map(quoting, statuses), clock=(clock := ShiftedClock()))
        told = []
        for _ in statuses:
            told.append(self.chat(front).status)
            clock.shift_s += LONG_PAUSE_S
        self.assertEqual(told, [502, 502, 404, 429, 503, 400, 400, 413])
        self.assert_nowhere(front, PROVIDER_MIDDLE, front.key.rpartition("-")[2])

    def test_a_secret_that_was_not_sent_is_removed_too(self) -> None:
        """An upstream may quote another of the operator's keys; in each field that is passed on."""
        secret = "sk-other-SECONDCREDENTIAL01"
        error = dict.fromkeys(("message", "type", "code", "param"), f"bad key {secret}")
        front = self.live(whole({"error": error}, status="400 Bad"))
        self.assertEqual(self.chat(front).status, 400)
        self.assert_nowhere(front, secret)

    def test_an_error_in_an_answer_of_200_is_not_repeated(self) -> None:
        """Whole, streamed before and after the first word, and where the answer is junk that holds the key."""
        front = self.live(
            quoting("200 OK"),
            whole(f"{{junk {PROVIDER_KEY} {PROMPT}".encode()),
            failing_stream,
            stream(f'{{"error": "{PROVIDER_KEY} {PROMPT}"}}'.encode()),
        )
        self.assertEqual([self.chat(front).status for _ in range(2)], [502, 502])
        client = self.client(front)
        client.chat(stream=True, text=PROMPT)
        cut = client.cut_reply()
        self.kept(Reply(cut.status, cut.headers, cut.pieces[-1]))
        self.assertIn(b'"error"', cut.pieces[-1])
        self.assertEqual(self.chat(front, stream=True).status, 502)
        self.assert_nowhere(front, PROVIDER_MIDDLE, PROMPT, ANSWER)


class TextSecretTest(SecretsCase):
    def test_prompts_and_answers_are_not_kept(self) -> None:
        """They pass through: not in a header, a row, a span, the log or a file, however the request ended."""
        answer = words(ANSWER)
        front: LiveFront = self.live(
            whole(completion(ANSWER, reasoning_content=ANSWER)),
            stream(*answer),
            stream(*answer[:2]),
            whole({"choices": ANSWER}),
            whole(b"", status="500 Oops"),
        )
        said = [front.chat(text=PROMPT), front.chat(text=PROMPT, stream=True)]
        self.assertTrue(all(ANSWER.encode() in reply.body for reply in said))
        self.replies += [Reply(reply.status, reply.headers, b"") for reply in said]
        client = self.client(front)
        client.chat(stream=True, text=PROMPT)
        client.cut_reply()
        self.assertEqual([self.chat(front).status for _ in range(2)], [502, 503])
        wrong: list[dict[str, Any]] = [{"n": PROMPT}, {"model": 5}, {"tools": PROMPT}, {"cache": {"no-cache": PROMPT}}]
        for fields in wrong:
            self.assertEqual(self.kept(front.ask("POST", CHAT, {**chat(PROMPT), **fields})).status, 400)
        self.assertEqual(self.kept(front.ask("POST", CHAT, f'{{"{PROMPT}'.encode())).status, 400)
        self.assert_nowhere(front, PROMPT, ANSWER)

    def test_an_exception_is_logged_without_its_words(self) -> None:
        """The client gets the request's id and nothing else; the operator, under that id, the class and the place."""
        front = self.front(providers={"up": Exploding()})
        replies = [self.chat(front), self.chat(front, stream=True)]
        for reply in replies:
            self.assert_error(reply, 500, "internal_error")
            self.assertIn(reply.get("x-request-id") or "?", reply.error["message"])
        told = [json.loads(line) for line in front.log.getvalue().splitlines()]
        self.assertEqual(
            [(line["error"], line["request"]) for line in told],
            [("ValueError", reply.get("x-request-id")) for reply in replies],
        )
        self.assertEqual([type(error) for error in front.errors], [ValueError, ValueError])
        front.errors.clear()
        self.assert_nowhere(front, PROVIDER_MIDDLE, PROMPT, ANSWER)
