"""An embeddings server that is slow, endless, wrong or away."""

import json
import unittest

from llmkit.embed_endpoint import EndpointEmbedder
from llmkit.errors import ProviderError, ProviderErrorKind
from llmkit.transport import Timeouts
from tests.support.scripted_upstream import Peer, Request, Script, ScriptedUpstream, answer, chunk, stream_head

PATIENT = Timeouts(connect_s=30, ttft_s=30, idle_s=30, total_s=60)


def vectors(*found: list[float]) -> bytes:
    """An answer that holds these."""
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(found)]
    return answer(json.dumps({"data": data}).encode())


class EndpointTest(unittest.TestCase):
    """Over a real socket."""

    def serving(self, *scripts: Script) -> ScriptedUpstream:
        """A server of these scripts, one connection each."""
        server = ScriptedUpstream(*scripts)
        self.addCleanup(server.close)
        return server

    def embedder(
        self, *scripts: Script, dim: int = 2, api_key: str | None = None, timeouts: Timeouts = PATIENT
    ) -> EndpointEmbedder:
        """An embedder over a server of these scripts."""
        embedder = EndpointEmbedder(self.serving(*scripts).url("/v1"), "tiny", dim, api_key=api_key, timeouts=timeouts)
        self.addCleanup(embedder.close)
        return embedder

    def failure(self, script: Script, timeouts: Timeouts = PATIENT) -> ProviderError:
        """How one text fails."""
        with self.assertRaises(ProviderError) as caught:
            self.embedder(script, timeouts=timeouts).embed(["hello"])
        return caught.exception

    def test_it_asks_as_openai_documents(self) -> None:
        """One POST with the model, the texts and the form of the numbers; the key in its header."""
        seen: list[Request] = []

        def script(peer: Peer) -> None:
            seen.append(peer.request())
            peer.send(vectors([1.0, 0.0], [0.0, 1.0]))

        found = self.embedder(script, api_key="sk-x").embed(["one", " ", "two"])
        self.assertEqual(found, [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        (request,) = seen
        self.assertEqual(request.line, "POST /v1/embeddings HTTP/1.1")
        self.assertEqual(request.get("authorization"), "Bearer sk-x")
        self.assertEqual(
            json.loads(request.body), {"model": "tiny", "input": ["one", "two"], "encoding_format": "float"}
        )

    def test_the_length_can_be_asked_for(self) -> None:
        """With one short text; what comes later must have it."""

        def first(peer: Peer) -> None:
            peer.request()
            peer.send(vectors([1.0, 2.0, 2.0]))

        def second(peer: Peer) -> None:
            peer.request()
            peer.send(vectors([1.0, 0.0]))

        embedder = EndpointEmbedder.ask(self.serving(first, second).url("/v1"), "tiny", timeouts=PATIENT)
        self.addCleanup(embedder.close)
        self.assertEqual(embedder.dim, 3)
        with self.assertRaises(ProviderError) as caught:
            embedder.embed(["hello"])
        self.assertIs(caught.exception.kind, ProviderErrorKind.MALFORMED)

    def test_a_server_that_says_nothing_is_left(self) -> None:
        """When the clock fires."""

        def script(peer: Peer) -> None:
            peer.request()
            peer.closed_within(5)

        error = self.failure(script, Timeouts(ttft_s=0.2))
        self.assertEqual((error.kind, error.clock), (ProviderErrorKind.TIMEOUT, "ttft"))

    def test_an_endless_answer_is_cut_off(self) -> None:
        """At what so many numbers can take, and its connection is not used again."""

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head("application/json"))
            peer.drip(chunk(b" " * 100_000 + b"1" * 100_000), every_s=0.001)

        error = self.failure(script)
        self.assertIs(error.kind, ProviderErrorKind.MALFORMED)
        self.assertIn("longer than", error.message)

    def test_a_wrong_answer_is_refused_and_not_repeated(self) -> None:
        """The fact is told, the words are not."""

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(answer(b'{"data": "secret"}'))

        error = self.failure(script)
        self.assertEqual((error.kind, error.status, error.sent), (ProviderErrorKind.MALFORMED, 200, True))
        self.assertNotIn("secret", error.message)

    def test_a_refusal_is_told_by_its_status(self) -> None:
        """As that of any other call."""

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(answer(b"{}", status="429 Slow", headers="retry-after: 7"))

        error = self.failure(script)
        self.assertEqual((error.kind, error.retry_after_s), (ProviderErrorKind.RATE_LIMIT, 7.0))

    def test_a_failed_call_gives_no_vectors_of_the_others(self) -> None:
        """All texts or none."""

        def script(peer: Peer) -> None:
            texts = json.loads(peer.request().body)["input"]
            peer.send(vectors(*[[1.0, 0.0]] * len(texts)))
            peer.request()
            peer.send(answer(b"{}", status="500 Broken"))

        with self.assertRaises(ProviderError):
            self.embedder(script).embed([f"text {number}" for number in range(65)])
