"""Spans and where they go. Knows no word of language models or gateways."""
