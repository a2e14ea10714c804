"""Synthetic questions with a hidden difficulty, and what models of three strengths say to them. Pure: a seed in.

How they are made stands in PREREGISTRATION.md; the shares here are those of its table, set before the router saw an
item. A model's answer depends on the question, the system prompt and the model alone, so a fresh answer can always be
told from one that belongs to another question.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from gateway.types import Tier


class Difficulty(StrEnum):
    """What a question really takes; nobody is told. Easiest first."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"


class Form(StrEnum):
    """What the answer must look like."""

    TEXT = "text"
    JSON = "json_object"
    SCHEMA = "json_schema"


@dataclass(frozen=True, slots=True)
class _Signs:
    """Shares of a difficulty's items that show a sign."""

    share: float
    long: float
    tools: float
    tagged: float


SIGNS: Mapping[Difficulty, _Signs] = {
    Difficulty.EASY: _Signs(share=0.50, long=0.10, tools=0.03, tagged=0.03),
    Difficulty.MEDIUM: _Signs(share=0.30, long=0.50, tools=0.10, tagged=0.10),
    Difficulty.HARD: _Signs(share=0.20, long=0.60, tools=0.25, tagged=0.40),
}
FORMS = {Form.TEXT: 0.50, Form.JSON: 0.25, Form.SCHEMA: 0.25}
INVALID_SHARE = 0.5
"""Of the wrong answers that a validator could recognise, in a run where models make such."""

MASTERS: Mapping[Tier, frozenset[Difficulty]] = {
    Tier.CHEAP: frozenset({Difficulty.EASY}),
    Tier.STANDARD: frozenset({Difficulty.EASY, Difficulty.MEDIUM}),
    Tier.STRONG: frozenset(Difficulty),
}
"""What a model of each tier gets right."""

SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}
_TOPICS = ("the invoice", "the shipment", "the contract", "the sensor log", "the schedule", "the refund", "the query")
_VERBS = ("reach", "explain", "change", "contradict", "precede", "replace", "double")
_OBJECTS = ("the limit", "the first entry", "the agreement", "last month's total", "the other branch", "the exception")
_FILLER = "As was said before, every figure in this account was entered by hand and may repeat an earlier one."


@dataclass(frozen=True, slots=True)
class Item:
    """One question. `number` names it; `text` is all of it that a model is shown."""

    number: int
    difficulty: Difficulty
    form: Form
    text: str
    tools: bool
    tag: str | None

    def body(self, model: str, *, system: str | None = None, temperature: float | None = None) -> dict[str, Any]:
        """The chat request that asks it."""
        messages = [{"role": "user", "content": self.text}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        body: dict[str, Any] = {"model": model, "messages": messages, "max_tokens": 400}
        if self.form is Form.JSON:
            body["response_format"] = {"type": "json_object"}
        if self.form is Form.SCHEMA:
            schema = {"name": "answer", "strict": True, "schema": SCHEMA}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if self.tools:
            body["tools"] = [TOOL]
        if self.tag is not None:
            body["tags"] = [self.tag]
        if temperature is not None:
            body["temperature"] = temperature
        return body


def make(count: int, seed: int) -> list[Item]:
    """`count` items, numbered from 0."""
    chance = random.Random(seed)
    return [_item(number, chance) for number in range(count)]


def _item(number: int, chance: random.Random) -> Item:
    shares = [signs.share for signs in SIGNS.values()]
    difficulty = chance.choices(list(SIGNS), shares)[0]
    signs = SIGNS[difficulty]
    question = (
        f"Question {number}: in {chance.choice(_TOPICS)} of {chance.randint(100, 999)} units, "
        f"does it {chance.choice(_VERBS)} {chance.choice(_OBJECTS)}?"
    )
    sentences = chance.randint(9, 30) if chance.random() < signs.long else chance.randint(0, 5)
    return Item(
        number=number,
        difficulty=difficulty,
        form=chance.choices(list(FORMS), list(FORMS.values()))[0],
        text=" ".join([question, *[_FILLER] * sentences]),
        tools=chance.random() < signs.tools,
        tag=chance.choice(("legal", "math")) if chance.random() < signs.tagged else None,
    )


def near_duplicates(items: Sequence[Item], count: int, seed: int) -> list[Item]:
    """Twins of the first `count` items that differ in one number or one "not", and are other questions."""
    chance = random.Random(seed)
    return [_twin(item, len(items) + at, negates=chance.random() < 0.5) for at, item in enumerate(items[:count])]


def _twin(item: Item, number: int, *, negates: bool) -> Item:
    if negates:
        return replace(item, number=number, text=item.text.replace("does it ", "does it not ", 1))
    before, _, rest = item.text.partition(" units, ")
    head, _, units = before.rpartition(" ")
    return replace(item, number=number, text=f"{head} {int(units) + 1} units, {rest}")


def right_answer(item: Item, system: str | None = None) -> str:
    """What only a right answer to this question under this system prompt says."""
    return f"right-{item.number}-{system or 'plain'}"


def answer(item: Item, tier: Tier, *, system: str | None = None, seed: int, invalid_share: float) -> str:
    """What a model of `tier` says. Wrong answers are recognisably invalid with probability `invalid_share`."""
    if item.difficulty in MASTERS[tier]:
        return _formed(item, right_answer(item, system))
    chance = random.Random(f"{seed} {item.number} {tier} {system}")
    if chance.random() >= invalid_share:
        return _formed(item, f"wrong-{item.number}-{system or 'plain'}")
    return {Form.TEXT: "", Form.JSON: "I would say that it does.", Form.SCHEMA: '{"result": 1}'}[item.form]


def _formed(item: Item, said: str) -> str:
    if item.form is not Form.TEXT:
        return json.dumps({"answer": said})
    words = 40 + 10 * (item.number % 8)
    return " ".join([said, *["because"] * words])


def is_right(item: Item, said: str | None, system: str | None = None) -> bool:
    """Whether an answer is the right one to this question."""
    return said == _formed(item, right_answer(item, system))
