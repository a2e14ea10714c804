"""Vectors from any server with OpenAI's `/embeddings`.

Decides what is asked, how long and how much of an answer is waited for, and which answers are believed. Does not know
sockets (transport.py) or statuses (client.py), and asks once: who calls decides what a failure means.

Rules. What comes is read strictly: one vector for each text under each index, all of the promised length, every number
finite. Lengths are made 1 here, whatever the server says of them. Blank texts are not sent: some servers refuse them.
"""

from collections.abc import Sequence
from typing import Self

from llmkit import wire_json
from llmkit.client import OpenAICompatClient, Timeouts
from llmkit.embed import encodable, first_axis, unit
from llmkit.openai import Malformed, decode_object

TIMEOUTS = Timeouts(connect_s=5.0, ttft_s=15.0, idle_s=5.0, total_s=30.0)
"""An embedding takes milliseconds; who waits longer for one is better served without."""

MOST_TEXTS = 64
"""In one call: their answer, 64 x 3,072 numbers of the largest common model, is 5 MB at most."""

MOST_DIM = 65_536
"""Far above any model known; bounds the answer that tells the length."""

_NUMBER_BYTES = 40  # 25 for the longest number, the rest for commas and indentation
_ROOM_BYTES = 65_536  # what stands around the numbers


class EndpointEmbedder:
    """One model behind one base URL. Safe from many threads; close() it.

    A server may change a model under its name: `version` is the operator's, to be raised when that happens.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        dim: int,
        *,
        version: str = "1",
        api_key: str | None = None,
        timeouts: Timeouts = TIMEOUTS,
    ) -> None:
        """ValueError if base_url is not one (`http://127.0.0.1:8000/v1`), dim not in 1..MOST_DIM, or a name empty."""
        if not 1 <= dim <= MOST_DIM:
            raise ValueError(f"dim must be from 1 to {MOST_DIM}")
        if not model or not version:
            raise ValueError("model and version must not be empty")
        self.name = f"endpoint {model}"
        self.version = version
        self.dim = dim
        self._model = model
        answer_bytes = dim * MOST_TEXTS * _NUMBER_BYTES + _ROOM_BYTES
        self._client = OpenAICompatClient(base_url, api_key, timeouts=timeouts, max_answer_bytes=answer_bytes)

    @classmethod
    def ask(cls, base_url: str, model: str, *, api_key: str | None = None, timeouts: Timeouts = TIMEOUTS) -> Self:
        """An embedder of the length that the server gives one text. Raises ProviderError, or ValueError as above."""
        answer_bytes = MOST_DIM * _NUMBER_BYTES + _ROOM_BYTES
        client = OpenAICompatClient(base_url, api_key, timeouts=timeouts, max_answer_bytes=answer_bytes)
        try:
            ((*vector,),) = _vectors(client, model, ["length"], dim=None)
        finally:
            client.close()
        return cls(base_url, model, len(vector), api_key=api_key, timeouts=timeouts)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order: float[dim], unit length.

        Raises ProviderError: of kind `malformed` if what came is not that. A failed call gives nothing of the others.
        """
        sent = [encodable(text) for text in texts if text.strip()]
        vectors: list[list[float]] = []
        for start in range(0, len(sent), MOST_TEXTS):
            vectors += _vectors(self._client, self._model, sent[start : start + MOST_TEXTS], dim=self.dim)
        found = iter(vectors)
        return [next(found) if text.strip() else first_axis(self.dim) for text in texts]

    def close(self) -> None:
        """Close the connections that wait."""
        self._client.close()


def _vectors(client: OpenAICompatClient, model: str, texts: Sequence[str], *, dim: int | None) -> list[list[float]]:
    """One call."""
    body = wire_json.encode({"model": model, "input": texts, "encoding_format": "float"})
    with client.open(body, stream=False, path="/embeddings") as answer:
        raw = answer.whole()
        try:
            return read_vectors(raw, len(texts), dim)
        except Malformed as error:
            answer.refuse(str(error), failure=type(error).__name__)


def read_vectors(raw: bytes, count: int, dim: int | None) -> list[list[float]]:
    """The vectors that an answer to `count` texts holds, in the order of the texts, each made unit length.

    dim  their length; None for any length that all of them have
    Raises Malformed, which holds nothing of the answer.
    """
    entries = decode_object(raw).get("data")
    if not isinstance(entries, list) or len(entries) != count:
        raise Malformed("not one vector for each text")
    by_index = {
        _index(entry): entry["embedding"] for entry in entries if isinstance(entry, dict) and "embedding" in entry
    }
    if set(by_index) != set(range(count)):
        raise Malformed("not one vector under each index")
    vectors = [_vector(by_index[index]) for index in range(count)]
    if len({len(vector) for vector in vectors} | ({dim} - {None})) > 1:
        raise Malformed("a vector of another length than was promised")
    return vectors


def _index(entry: dict[str, object]) -> int:
    index = entry.get("index")
    return index if type(index) is int else -1


def _vector(numbers: object) -> list[float]:
    if not isinstance(numbers, list) or not 1 <= len(numbers) <= MOST_DIM:
        raise Malformed("a vector that is no list of numbers")
    if not all(type(number) in (int, float) for number in numbers):
        raise Malformed("a vector that is no list of numbers")
    try:
        return unit([float(number) for number in numbers])
    except (ValueError, OverflowError):
        raise Malformed("a vector without a direction") from None
