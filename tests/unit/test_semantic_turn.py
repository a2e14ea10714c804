"""The one question of a request: which have one, and the same request with another."""

import unittest
from typing import Any

from gateway.semantic.turn import Unfit, asking, question_of

ASKED = "What is the capital of France?"
USER = {"role": "user", "content": ASKED}


class TurnTest(unittest.TestCase):
    """The question of a request."""

    def test_instructions_may_stand_before_it(self) -> None:
        """Nothing else may, and nothing after it."""
        system, developer = ({"role": role, "content": "be kind"} for role in ("system", "developer"))
        answer = {"role": "assistant", "content": "?"}
        for messages in ([USER], [system, USER], [developer, system, USER]):
            self.assertEqual(question_of(messages), ASKED)
        others: tuple[list[dict[str, Any]], ...] = (
            [USER, USER],
            [answer, USER],
            [USER, answer],
            [USER, system],
            [system],
            [{"content": "x"}, USER],
            [{"role": ["system"], "content": "x"}, USER],
            [{"content": ASKED}],
        )
        for messages in others:
            self.assertEqual(question_of(messages), Unfit.TURNS, messages)

    def test_its_content_is_one_text(self) -> None:
        """As a string, or the only part."""
        part = {"type": "text", "text": ASKED}
        self.assertEqual(question_of([{"role": "user", "content": [part]}]), ASKED)
        image = {"type": "image_url", "image_url": {"url": "x"}}
        contents: tuple[Any, ...] = (None, 5, [], [part, part], [part, image], [image], [ASKED], [{"type": "text"}])
        for content in (*contents, [{"type": "text", "text": 5}], {"type": "text", "text": ASKED}):
            self.assertEqual(question_of([{"role": "user", "content": content}]), Unfit.CONTENT, content)

    def test_the_same_message_with_another_question(self) -> None:
        """All else stays, in its form."""
        for content, other in (
            (ASKED, "new"),
            ([{"type": "text", "text": ASKED, "x": 1}], [{"type": "text", "text": "new", "x": 1}]),
        ):
            message = {"role": "user", "name": "bob", "content": content}
            self.assertEqual(asking(message, "new"), {"role": "user", "name": "bob", "content": other})
