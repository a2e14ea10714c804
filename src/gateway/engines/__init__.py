"""Who performs the effects of a story: `threads` for real, `sim` for tests. Nothing above knows which one runs."""
