"""Artifacts of the bench as a measurement leaves them, for tests of what is made of them."""

from typing import Any

OURS = {
    "p50_us": 110,
    "p99_us": 210,
    "added_p50_us": 100,
    "added_p99_us": 200,
    "cpu_us_per_request": 120.0,
    "stream_added_ttfb_p50_us": 140,
    "hit_added_p50_us": 70,
    "failover_added_p50_us": 400,
    "c32_requests_per_s": 6000.0,
    "c32_p99_us": 9000,
    "c32_cpu_us_per_request": 140.0,
    "c32_streams_per_s": 3000.0,
    "c32_stream_ttfb_p99_us": 9000,
    "bad": 0.0,
    "foreign_cpus": 0.1,
}
STREAMS = {
    "streams_complete": 500,
    "streams_ttfb_p50_us": 90_000,
    "streams_ttfb_p99_us": 150_000,
    "streams_rss_mib": 60.0,
    "foreign_cpus": 0.1,
}


def subject(ours: bool, **changed: float) -> dict[str, Any]:
    """One of those that are compared, over three repetitions of which the second is `changed`'s median."""
    run = {**OURS, **changed}
    if not ours:
        run = {name: value for name, value in run.items() if not name.startswith(("hit_", "failover_"))}
    runs = [{**run, "c32_requests_per_s": run["c32_requests_per_s"] * part} for part in (0.9, 1.0, 1.2)]
    about: dict[str, Any] = {"ours": ours, "start_s": [0.19, 0.2, 0.25], "rss_mib": 30.0, "rss_after_mib": 35.0}
    if not ours:
        about |= {"note": "a note", "release": "1.2.3"}
    return {**about, "runs": runs, "streams": [dict(STREAMS)], "curve": {"1": [{"p50_us": 1, "p99_us": 2}]}}


def artifact() -> dict[str, Any]:
    """A whole measurement in which every gate passes."""
    return {
        "machine": {
            "python": "3.11.7",
            "sqlite": "3.40.1",
            "cpu": "some CPU",
            "cpus": 2,
            "memory_gib": 24.0,
            "kernel": "6.1.2-x",
            "commit": "abcdef0",
            "load_average": 0.1,
        },
        "quick": False,
        "seconds": 2.0,
        "repetitions": 3,
        "fsync_us": [140.0, 150.0, 190.0],
        "install_mb": 3.8,
        "growth": {"mib": 2.5, "commit": "1234567"},
        "subjects": {
            "normal": subject(True),
            "full": subject(True, added_p50_us=350, c32_requests_per_s=4000.0),
            "portkey": subject(False, c32_requests_per_s=2000.0, c32_streams_per_s=1000.0),
            "litellm": subject(False, c32_requests_per_s=130.0, c32_streams_per_s=38.0),
            "ferrogw": subject(False, c32_requests_per_s=9000.0, c32_streams_per_s=2500.0),
            "vllm-router": {"ours": False, "note": "another note", "missing": "not installed"},
        },
        "scale": {
            "ledger rows": {
                "1000": [{"p50_us": 100, "p99_us": 200}, {"p50_us": 110, "p99_us": 200}],
                "1000000": [{"p50_us": 104, "p99_us": 210}, {"p50_us": 110, "p99_us": 205}],
            }
        },
    }
