"""What a judge of the semantic cache would be shown, pair by pair: how far it helps, and how far it must be trusted.

    python -m evals.semantic_grey [--pairs FILE ...] [--least 0.4 0.5 0.6 0.7 0.8] [--results DIR]
        [--judge BASE_URL --model MODEL [--key-env VARIABLE]]

Of each pair of questions: whether the cache would look either up at all, whether its verifier passes it, whether
anything bars a judge, and whether it is near enough by the embedder that needs no download. What is left is shown to
the judge. Of paraphrases that is what a judge can add; of near-misses, what a judge that says yes to everything would
serve wrongly. With --judge a model is asked about each of them, in the words in which the gateway asks: what it says of
the near-misses is what it would serve wrongly. BASE_URL is the gateway's, or that of any OpenAI-compatible server. A
judge that does not answer the first time ends the run; later a failure is counted, and says nothing of the pair.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from evals import ROOT
from evals.report import RESULTS, write
from evals.semantic_sets import Pair, read_pairs
from gateway.semantic.eligible import refusal
from gateway.semantic.grey import bar
from gateway.semantic.judgement import MOST_TOKENS, Verdict, prompt, verdict
from gateway.semantic.verifier import read, verify
from llmkit import wire_json
from llmkit.client import OpenAICompatClient, Timeouts
from llmkit.embed import HashEmbedder
from llmkit.errors import ProviderError
from llmkit.openai import decode_object

COMMITTED = tuple(
    ROOT / "evals" / "data" / "semantic" / f"{name}.jsonl" for name in ("near_misses", "rewordings", "generated_pairs")
)
LEAST = (0.4, 0.5, 0.6, 0.7, 0.8)
TIMEOUTS = Timeouts(connect_s=5.0, ttft_s=60.0, idle_s=60.0, total_s=120.0)

Ask = Callable[[Pair], Verdict | None]
"""What a judge says of a pair; None if it says nothing."""

NOTHING = "nothing"
SAID = (*(each.value for each in Verdict), NOTHING)


def course(pair: Pair, embedder: HashEmbedder) -> tuple[str, float]:
    """What becomes of a pair before a judge is asked, and its cosine."""
    if refusal(pair.a) or refusal(pair.b):
        return "not looked up", 0.0
    one, other = read(pair.a), read(pair.b)
    if verify(one, other) is None:
        return "verified", 1.0
    if reason := bar(one, other):
        return f"barred: {reason}", 0.0
    left, right = embedder.embed([pair.a, pair.b])
    return "open", sum(a * b for a, b in zip(left, right, strict=True))


def judge(client: OpenAICompatClient, model: str) -> Ask:
    """Asks a model as the gateway does; a gateway in between keeps nothing of it.

    What it returns raises ProviderError until there was an answer.
    """
    has_answered = False

    def ask(pair: Pair) -> Verdict | None:
        nonlocal has_answered
        body = {"model": model, "messages": prompt(pair.a, pair.b), "temperature": 0, "max_tokens": MOST_TOKENS}
        try:
            with client.open(wire_json.encode(body), stream=False, headers=[("x-gateway-private", "true")]) as answer:
                said = verdict(decode_object(answer.whole()))
        except ProviderError:
            if has_answered:
                return None
            raise
        has_answered = True
        return said

    return ask


def measure(pairs: Iterable[Pair], least: Sequence[float], ask: Ask | None = None) -> dict[str, dict[str, Any]]:
    """By kind: what became of its pairs, how many a judge is shown from each cosine on, and what it says of these."""
    embedder = HashEmbedder()
    courses: dict[str, Counter[str]] = {}
    shown: dict[str, Counter[str]] = {}
    said: dict[str, Counter[str]] = {}
    for pair in pairs:
        kind = f"{'paraphrase' if pair.same else 'near-miss'} {pair.kind}"
        told, cosine = course(pair, embedder)
        courses.setdefault(kind, Counter())[told] += 1
        shown.setdefault(kind, Counter()).update(f"{each:g}" for each in least if told == "open" and cosine >= each)
        if ask is not None and told == "open" and cosine >= min(least):
            said.setdefault(kind, Counter())[ask(pair) or NOTHING] += 1
    return {
        kind: {
            "pairs": counts.total(),
            "courses": dict(sorted(counts.items())),
            "shown": {f"{each:g}": shown[kind][f"{each:g}"] for each in least},
            **({} if ask is None else {"said": {each: said.get(kind, Counter())[each] for each in SAID}}),
        }
        for kind, counts in sorted(courses.items())
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write the artifact, print it; returns the exit status."""
    about = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m evals.semantic_grey", description=about)
    parser.add_argument("--pairs", type=Path, action="append", help="a file of pairs; default: the committed ones")
    parser.add_argument("--least", type=float, nargs="+", default=list(LEAST), help="cosines")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the artifact goes")
    parser.add_argument("--judge", metavar="BASE_URL", help="ask a model there; without it nobody is asked")
    parser.add_argument("--model", help="which one")
    parser.add_argument("--key-env", metavar="VARIABLE", help="the variable that holds its key")
    arguments = parser.parse_args(argv)
    if (arguments.judge is None) is not (arguments.model is None):
        parser.error("--judge and --model belong together")
    key = os.environ.get(arguments.key_env) if arguments.key_env else None
    try:
        with ExitStack() as stack:
            ask = None
            if arguments.judge is not None:
                client = OpenAICompatClient(arguments.judge, key, timeouts=TIMEOUTS)
                stack.callback(client.close)
                ask = judge(client, arguments.model)
            figures = {
                path.name: measure(read_pairs(path.name, path.read_bytes()), arguments.least, ask)
                for path in arguments.pairs or COMMITTED
            }
    except (OSError, ValueError, ProviderError) as error:
        parser.error(str(error))
    arguments.results.mkdir(parents=True, exist_ok=True)
    write(arguments.results / "semantic_grey.json", figures)
    for name, kinds in figures.items():
        print(name)
        for kind, told in kinds.items():
            shown = ", ".join(f"{count} >= {least}" for least, count in told["shown"].items())
            said = f"; said: {told['said']}" if "said" in told else ""
            print(f"  {kind:<28} {told['pairs']:>4} pairs; shown: {shown}{said}; {told['courses']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
