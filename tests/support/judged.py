"""One gateway whose semantic cache has a judge, for tests: scripted, and paid for by a tenant of the operator."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.fake_provider import FakeProvider
from gateway.judging import Judging
from gateway.providers import Provider
from tests.support.semantic import SemanticCase
from tests.support.world import CONFIG, RealWorld

ASKED = "How do I cancel my gym membership?"
NEAR = "How do I end my gym membership?"
FAR = "Which plants are safe for cats?"
MILES, OTHER_MILES = "How do I convert 5 miles to kilometers?", "How do I convert 6 miles to kilometers?"

SAME, DIFFERENT = {"text": "SAME"}, {"text": "DIFFERENT"}

JUDGE = """
[[providers]]
name = "bench"
dialect = "fake"
script = [{ text = "DIFFERENT" }]

[[deployments]]
name = "wise"
provider = "bench"
model = "gw-wise"
price = { input = 1, output = 4 }
max_output_tokens = 16384
"""


def judged_config(cache: str = "", more: str = "") -> str:
    """A configuration with a judge; lines for [cache], and for the file."""
    audits = "" if "judge_audit_percent" in cache else "judge_audit_percent = 0\n"
    head = f'[cache]\nsemantic = true\njudge = "wise"\njudge_key_env = "JUDGE_KEY"\n{audits}'
    return f"{head}{cache}\n{CONFIG}{JUDGE}{more}"


class JudgedCase(SemanticCase):
    """One gateway whose upstream never says the same thing twice, and whose judge says what is scripted.

    verdicts  what the judge says, the last of it for ever
    budget    of the judge's key in USD
    """

    config = judged_config()
    verdicts: Sequence[Mapping[str, Any]] = (SAME,)
    budget = "5"

    def prepare(self) -> None:
        with RealWorld(folder=self.folder, clock=self.clock) as world:
            self.judge_key = world.key(self.budget, tenant="operator")
        self.env["JUDGE_KEY"] = self.judge_key
        self.judge = FakeProvider(list(self.verdicts), name="bench")

    def providers(self) -> dict[str, Provider]:
        return {**super().providers(), "bench": self.judge}

    @property
    def judging(self) -> Judging:
        assert self.books.judging is not None
        return self.books.judging

    def ask(self, text: str = ASKED, **fields: Any) -> tuple[str, str]:
        """What the cache said of one request, and the answer; all that it was near to is judged by then."""
        said = super().ask(text, **fields)
        self.judging.flush()
        return said

    def ask_both(self, first: str = ASKED, second: str = NEAR, **fields: Any) -> None:
        """Two questions, of which the second is answered for ten seconds only."""
        self.ask(first, **fields)
        self.ask(second, **{"cache": {"ttl": 10}, **fields})
        self.clock.advance(11)

    def stats(self) -> dict[str, Any]:
        """What the tier tells of itself."""
        return self.judging.stats()

    def judged(self) -> list[list[dict[str, str]]]:
        """What the judge was asked, call by call."""
        return [call.body["messages"] for call in self.judge.calls]
