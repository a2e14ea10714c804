"""What a message may not repeat. Pure."""

import re

MOST_CHARS = 500
"""Of a message to a client: enough for every real one, and no way to fill logs with more."""

_SECRET = re.compile(
    r"""(?ix)
    \b (?: sk[-_] | (?: (?:key|token)[-_] | bearer\s+ ) (?=\S*\d) ) [\w.~+/=-]{8,}
    | \b (?: (?:gsk|hf|fw|r8|gh[a-z])_ | (?:xai|pplx|nvapi|csk|glpat)- | AIza | AKIA | eyJ ) (?=\S*\d) [\w.~+/=-]{16,}
    """
)
"""A credential has a prefix, and a digit somewhere; "the API key provided" and "bearer authentication" have none. The
second line has the prefixes of providers, clouds and repositories, and of tokens that are signed JSON.
"""


def without_secrets(message: str) -> str:
    """A message without anything that looks like a credential, cut at MOST_CHARS characters."""
    return _SECRET.sub("[removed]", message)[:MOST_CHARS]
