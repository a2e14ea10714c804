"""Whether a stored answer to one question may be given to another: the closed-world verifier.

It compares what two texts say and knows no world, no context and no other language than English. Everything said must
be found on both sides: equal, of one base form, or in one row of the lexicon, in one order. What is on no list counts
as a difference, so it misses most free rewording.

    read(a), read(b); verify(a, b) is None  =>  a.key == b.key

so an ordinary index on the key finds every question that can be served.
"""

from gateway.semantic.question import VERSION, Question, read
from gateway.semantic.rules import Refutation, Veto
from gateway.semantic.rules import difference as verify

__all__ = ["VERSION", "Question", "Refutation", "Veto", "read", "verify"]
