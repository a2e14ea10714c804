"""Which questions are the same question: pure, and knows nothing of the gateway.

`verifier` reads a text and says whether two of them differ in meaning; `eligible` says which texts are never compared.
"""
