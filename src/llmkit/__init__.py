"""Talking to language-model APIs: wire formats, event streams, tokens, prices, embeddings and the client."""
