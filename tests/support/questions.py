"""Two texts, compared: for tests of what the semantic verifier reads."""

import unittest

from gateway.semantic.verifier import Veto, read, verify


class QuestionCase(unittest.TestCase):
    """Says of two texts that they ask the same or not: both ways round, and with the key as promised."""

    def same(self, one: str, *others: str) -> None:
        """All of these ask what the first one asks."""
        for other in others:
            with self.subTest(one=one, other=other):
                self.assertIsNone(verify(read(one), read(other)))
                self.assertIsNone(verify(read(other), read(one)))
                self.assertEqual(read(one).key, read(other).key)

    def different(self, one: str, other: str, veto: Veto | None = None) -> None:
        """They ask different things; the veto is the first reason."""
        with self.subTest(one=one, other=other):
            refutation = verify(read(one), read(other))
            self.assertIsNotNone(refutation)
            self.assertIsNotNone(verify(read(other), read(one)))
            if refutation is not None and veto is not None:
                self.assertEqual(refutation.veto, veto)
