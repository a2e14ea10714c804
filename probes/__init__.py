"""Adversarial probes: each tries to break one promise of a real gateway, and says what it saw.

    python -m probes [--only NAME] [--list] [--json] [--seconds S]

A probe starts its own gateway, in this process or in one of its own, over upstreams that misbehave as told and keep a
meter of what they bill. The meter is the oracle: what an upstream billed must stand in the books. Loopback only.
"""
