"""What a message may not repeat."""

import unittest

from gateway.redaction import MOST_CHARS, without_secrets


class RedactionTest(unittest.TestCase):
    """Messages that leave the gateway."""

    def test_secrets_are_taken_out_of_an_upstreams_words(self) -> None:
        """Whatever looks like a credential; the rest stays."""
        for secret in (
            *("sk-proj-abcDEF123456", "sk_live_abcdef12345", "Bearer abcdef123456", "key-0123456789abcdef"),
            *("gsk_0123456789abcdefghij", "xai-0123456789abcdefghij", "pplx-0123456789abcdefghij"),
            *("AIzaSy0123456789abcdefghij", "AKIA0123456789ABCDEFGH", "eyJhbGciOiJIUzI1NiJ9.e30.abc"),
        ):
            with self.subTest(secret):
                cleaned = without_secrets(f"Incorrect API key provided: {secret}. See the page.")
                self.assertNotIn(secret.split("-")[-1].split(" ")[-1].split("_")[-1], cleaned)
                self.assertIn("Incorrect API key provided", cleaned)
        for plain in (
            "max_tokens is too large: 99. The token limitation is 5.",
            "Use bearer authentication, or the API key provided.",
            "token_by_token is not supported by risk-assessment models",
            "hf_transformers_pipeline_models and xai-explainable-models are not served",
        ):
            self.assertEqual(without_secrets(plain), plain)
        self.assertEqual(len(without_secrets("x" * 2000)), MOST_CHARS)
