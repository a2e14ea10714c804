"""What routing and the caches save, step by step, and how often a step gives an answer that is wrong.

Two workloads, see asks.py: synthetic questions in the words of the first time, and questions of the committed pairs in
several wordings among their near-misses, where the semantic cache is the last step. Every step is a gateway of its own
that is asked the same requests in the same order. A model's answer names its question, so a wrong one is seen: a hit is
wrong if it is not what the same model says to what was asked, and has crossed tenants if no model has given this tenant
that answer before.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from evals import semantic_corpus
from evals.asks import SEED, TENANTS, Ask, Family, chances, in_other_words, synthetic, workload
from evals.experiment import Artifact, Options
from evals.items import INVALID_SHARE, answer, is_right
from evals.models import PRICES, bill_nanousd, config, models, tokens
from evals.stats import most_failures
from evals.world import World
from gateway.clock import FakeClock
from gateway.semantic.verifier import VERSION
from gateway.types import Tier

NAME = "waterfall"
QUICK = 200
"""How many requests of each workload a quick run plays; too few for any share of hits."""
LASTS_S = 3000.0
"""No entry of an hour expires meanwhile: when one does is left to chance, and this must come out the same each time."""


@dataclass(frozen=True, slots=True)
class Step:
    """One way to serve a workload.

    shown          in the table
    judged         whose wrong answers are this step's: all `answers`, those of `asked_again`, or the hits of a cache
    invalid_share  of the wrong answers that a validator refuses
    """

    shown: str
    judged: str
    model: str = "auto"
    invalid_share: float = 0.0
    cache_ttl_s: float = 0.0
    semantic: bool = False


STRONG = Step("always strong", "answers", model="strong")
ROUTED = Step("+ routing", "answers")
SYNTHETIC: Mapping[str, Step] = {
    "always_strong": STRONG,
    "routed": ROUTED,
    "routed_and_cached": Step("+ exact cache", "hit", cache_ttl_s=3600),
}
IN_OTHER_WORDS: Mapping[str, Step] = {
    "always_strong": STRONG,
    "routed": ROUTED,
    "escalated": Step("+ escalation", "asked_again", invalid_share=INVALID_SHARE),
    "cached": Step("+ exact cache", "hit", invalid_share=INVALID_SHARE, cache_ttl_s=3600),
    "cached_semantically": Step(
        "+ semantic cache", "semantic", invalid_share=INVALID_SHARE, cache_ttl_s=3600, semantic=True
    ),
}
SHOWN = {"answers": " answers", "asked_again": " asked again", "hit": " hits", "semantic": " hits"}
CACHES = ("hit", "semantic")
"""As an answer says where it comes from."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is played, in how many requests."""

    title: str
    steps: Mapping[str, Step]
    count: int


WORKLOADS: Mapping[str, Workload] = {
    "synthetic": Workload("Synthetic questions, each in the same words every time", SYNTHETIC, 1_000),
    "in_other_words": Workload(
        "Questions of the committed pairs, in several wordings, among their near-misses", IN_OTHER_WORDS, 8_000
    ),
}


def run(options: Options) -> Artifact:
    """Both workloads, step by step. Raises BadLine and Contradiction."""
    written = semantic_corpus.sets(semantic_corpus.WRITTEN)
    pairs = [pair for ones in written.values() for pair in ones]
    families = {"synthetic": synthetic(), "in_other_words": in_other_words(pairs)}
    played = {name: play(load, families[name], quick=options.quick) for name, load in WORKLOADS.items()}
    return {
        "n": sum(one["n"] for one in played.values()),
        "seed": SEED,
        "files": semantic_corpus.digests(semantic_corpus.WRITTEN),
        "verifier": VERSION,
        "prices_usd_per_million": {tier: dict(price) for tier, price in PRICES.items()},
        "workloads": played,
    }


def play(load: Workload, families: Sequence[Family], *, quick: bool) -> dict[str, Any]:
    """One workload in all its steps."""
    asks = workload(families, load.count, SEED)[: QUICK if quick else load.count]
    return {
        "n": len(asks),
        "texts": sum(map(len, families)),
        "questions": len({item.number for family in families for item in family}),
        **asdict(chances(asks)),
        "steps": {name: serve(asks, step) for name, step in load.steps.items()},
    }


def serve(asks: Sequence[Ask], step: Step) -> dict[str, Any]:
    """One step: all requests through a gateway of its own."""
    clock = FakeClock()
    providers = models((ask.item for ask in asks), seed=SEED, invalid_share=step.invalid_share)
    settings = config(cache_ttl_s=step.cache_ttl_s, semantic=step.semantic)
    with World(settings, providers=providers, clock=clock, seed=SEED) as world:
        keys = {tenant: world.key(tenant=tenant) for tenant in TENANTS}
        answers = []
        for ask in asks:
            body = ask.item.body(step.model, system=ask.system, temperature=ask.temperature)
            answers.append(world.gateway.handle(keys[ask.tenant], body))
            clock.advance(LASTS_S / len(asks))
        return {
            **judge(asks, answers, invalid_share=step.invalid_share),
            "cost_nanousd": world.spent_nanousd(),
            "tokens": tokens(providers),
        }


@dataclass(slots=True)
class Tally:
    """Answers of one kind. `pairs` are the different ones: what was asked, and the question that was answered."""

    count: int = 0
    wrong: int = 0
    crossed_tenants: int = 0
    pairs: dict[tuple[str, int | None], bool] = field(default_factory=dict)

    def add(self, ask: Ask, answered: int | None, *, wrong: bool, crossed: bool = False) -> None:
        """Count one; `answered` is the number of the question that it answers, None of none."""
        self.count += 1
        self.wrong += wrong
        self.crossed_tenants += crossed
        pair = ask.item.text, answered
        self.pairs[pair] = self.pairs.get(pair, False) or wrong

    def told(self) -> dict[str, int]:
        """As JSON."""
        return {
            "count": self.count,
            "wrong": self.wrong,
            "crossed_tenants": self.crossed_tenants,
            "different": len(self.pairs),
            "different_wrong": sum(self.pairs.values()),
        }


def judge(asks: Sequence[Ask], answers: Sequence[Mapping[str, Any]], *, invalid_share: float = 0.0) -> dict[str, Any]:
    """What the clients got; `wrong_hits` names the question that was asked and one text of that which was answered."""
    tallies = {kind: Tally() for kind in SHOWN}
    given: set[tuple[str, str]] = set()
    questions: dict[str, tuple[int, str]] = {}
    wrong_hits: dict[tuple[str, str], None] = {}
    for ask, said in zip(asks, answers, strict=True):
        text, cache, right = said["text"], said["cache"], is_right(ask.item, said["text"], ask.system)
        tallies["answers"].add(ask, ask.item.number, wrong=not right)
        if said["exit"] == "escalated":
            tallies["asked_again"].add(ask, ask.item.number, wrong=not right)
        if cache in CACHES:
            fresh = answer(ask.item, Tier(said["tier"]), system=ask.system, seed=SEED, invalid_share=invalid_share)
            answered, other = questions.get(text, (None, "nothing"))
            tallies[cache].add(ask, answered, wrong=text != fresh, crossed=(ask.tenant, text) not in given)
            if text != fresh:
                wrong_hits[ask.item.text, other] = None
        else:
            given.add((ask.tenant, text))
            questions.setdefault(text, (ask.item.number, ask.item.text))
    return {kind: tally.told() for kind, tally in tallies.items()} | {"wrong_hits": [list(pair) for pair in wrong_hits]}


def cost_nanousd(artifact: Artifact, name: str, step: str) -> int:
    """What a step of a workload cost by the models' own meters and the price book."""
    return bill_nanousd(artifact["workloads"][name]["steps"][step]["tokens"], artifact["prices_usd_per_million"])


def saved_percent(artifact: Artifact, name: str, step: str, than: str = "always_strong") -> float:
    """What a step of a workload saves of the cost of another."""
    return 100 * (1 - cost_nanousd(artifact, name, step) / cost_nanousd(artifact, name, than))


def measured(artifact: Artifact) -> dict[str, float | None]:
    """What the gates look at."""
    steps = {(name, step): one for name, load in artifact["workloads"].items() for step, one in load["steps"].items()}
    every = list(steps.values())
    return {
        "waterfall.wrong_hits": sum(one["hit"]["wrong"] for one in every),
        "waterfall.crossed_tenants": sum(one[cache]["crossed_tenants"] for one in every for cache in CACHES),
        "waterfall.unexplained": sum(
            abs(one["cost_nanousd"] - cost_nanousd(artifact, *place)) for place, one in steps.items()
        ),
        "waterfall.saved": round(saved_percent(artifact, "synthetic", "routed_and_cached"), 1),
        "waterfall.semantic_wrong": sum(one["semantic"]["wrong"] for one in every),
        **_shares(artifact),
    }


def _shares(artifact: Artifact) -> dict[str, float | None]:
    """What the semantic cache adds to the exact one; None of fewer requests than were written down."""
    name = "in_other_words"
    played = artifact["workloads"][name]
    exact, both = (played["steps"][step] for step in ("cached", "cached_semantically"))
    rate = most_failures(both["semantic"]["different_wrong"], both["semantic"]["different"])
    shares = {
        "waterfall.semantic_wrong_rate": 100 * rate,
        "waterfall.more_hits": 100 * (_hits(both) - _hits(exact)) / played["n"],
        "waterfall.semantic_saved": saved_percent(artifact, name, "cached_semantically", than="cached"),
    }
    whole = played["n"] == WORKLOADS[name].count
    return {gate: round(share, 2) if whole else None for gate, share in shares.items()}


def _hits(one: Mapping[str, Any]) -> int:
    return int(one["hit"]["count"] + one["semantic"]["count"])


COLUMNS = (
    *("step", "cost, USD", "saved", "exact hits", "semantic hits", "right answers"),
    *("wrong by this step (95 %)", "of different ones"),
)


def lines(artifact: Artifact) -> list[str]:
    """A Markdown table of the steps of each workload, and every wrong hit by name."""
    return [line for name in WORKLOADS for line in (*told(artifact, name), "")] + told_wrong(artifact)


def told(artifact: Artifact, name: str) -> Iterator[str]:
    """One workload: what was asked, and a table of its steps."""
    load, played = WORKLOADS[name], artifact["workloads"][name]
    yield (
        f"{load.title}: {played['n']} requests for {played['texts']} texts of {played['questions']} questions. "
        f"{played['answerable']} have a question that was answered before; {played['tempting']} have one that was not, "
        "where the answer to a near-miss lies."
    )
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{'---|' * len(COLUMNS)}"
    for place, step in load.steps.items():
        one = played["steps"][place]
        exact, semantic = (f"{100 * one[cache]['count'] / played['n']:.1f} %" for cache in CACHES)
        right = 100 - 100 * one["answers"]["wrong"] / played["n"]
        tally, what = one[step.judged], SHOWN[step.judged]
        yield (
            f"| {step.shown} | {cost_nanousd(artifact, name, place) / 1e9:.6f} "
            f"| {saved_percent(artifact, name, place):.1f} % | {exact} | {semantic} | {right:.1f} % "
            f"| {_wrong(tally['wrong'], tally['count'], what)} "
            f"| {_wrong(tally['different_wrong'], tally['different'])} |"
        )


def _wrong(wrong: int, count: int, what: str = "") -> str:
    """With the exact upper bound of the rate."""
    return f"{wrong} of {count}{what}" + (f", at most {100 * most_failures(wrong, count):.2f} %" if count else "")


def told_wrong(artifact: Artifact) -> list[str]:
    """Every wrong hit by name."""
    found = [
        f"Wrong ({step.shown}): {asked!r} was given the answer to {answered!r}."
        for name, load in WORKLOADS.items()
        for place, step in load.steps.items()
        for asked, answered in artifact["workloads"][name]["steps"][place]["wrong_hits"]
    ]
    return found or ["No hit was wrong."]
