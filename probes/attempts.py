"""Upstream calls: each has money of its own behind it, whatever became of the one before it."""

import threading
import time

from probes import client
from probes.lab import Lab, Probe
from probes.upstream import (
    PATIENCE_S,
    ROLE,
    Call,
    Reply,
    failing,
    good,
    silent,
    wait_until,
    word,
)

LEFT_S = 10.0
"""An upstream whose client has left is left within 2 s, but the machine may be busy."""

_DEAR = """
[[deployments]]
name = "dear"
provider = "p1"
model = "dear"
price = { input = 100, output = 400 }
[[aliases]]
name = "mixed"
deployments = ["d0", "dear"]
"""


def dearer_backup(lab: Lab) -> str:
    """The first deployment fails, the backup costs a hundred times as much: held for the dearest, or not called."""
    failed, backup = lab.upstream(failing(500)), lab.upstream(good())
    gateway = lab.inside(failed, backup, more=_DEAR)
    rich = gateway.key()
    served = gateway.chat(rich, model="mixed")
    gateway.wait_quiet()
    [row], billed = gateway.rows(rich), 100 * backup.metered_nanousd
    lab.check(served.status == 200, f"failover to a dearer deployment: {served.status}")
    lab.check(row["cost_nanousd"] == billed, f"billed {billed}, booked {row['cost_nanousd']}")
    lab.check(row["overage_nanousd"] == 0, f"{row['overage_nanousd']} was not held for the dearer one")
    poor, calls = gateway.key(billed), len(backup.calls)
    refused = gateway.chat(poor, model="mixed")
    gateway.wait_quiet()
    lab.check(len(backup.calls) == calls, "the dearer one was called without money for its worst case")
    lab.check(refused.status in (402, 503), f"without money for the dearer one: {refused.status}")
    lab.check(gateway.counted_nanousd(poor) == 0, "a call that was not billed was charged")
    return f"served for {row['cost_nanousd']} without overage; with less money {refused.status}, and not called"


# --- one attempt, one hold --------------------------------------------------------------------------------------


def attempts_share_no_hold(lab: Lab) -> str:
    """An upstream bills and is silent, the next answers: both are paid; without money, no second call."""
    quiet, backup = lab.upstream(silent), lab.upstream(good())
    gateway = lab.inside(quiet, backup, provider="ttft_timeout_s = 1")
    rich = gateway.key()
    answer = gateway.chat(rich)
    gateway.wait_quiet()
    meter, shown = quiet.metered_nanousd + backup.metered_nanousd, gateway.shown(rich)
    lab.check(answer.status == 200, f"failover after silence: {answer.status}")
    lab.check(shown["spent_nanousd"] == backup.metered_nanousd, f"the answer cost {shown['spent_nanousd']}")
    counted = gateway.counted_nanousd(rich)
    lab.check(counted >= meter, f"two upstreams billed {meter}, {counted} counts")
    [lost] = [hold for hold in gateway.holds() if hold["deployment"] == "d0"] or [{"amount_nanousd": 0}]
    worst = int(lost["amount_nanousd"])
    lab.check(worst > 0, "the silent call left no unresolved hold")
    poor = gateway.key(worst)
    calls = len(backup.calls)
    second = gateway.chat(poor)
    gateway.wait_quiet()
    lab.check(len(backup.calls) == calls, "a second call was made for which there was no money")
    lab.check(second.status == 504, f"the last outcome stands: {second.status}, not 504")
    lab.check(gateway.counted_nanousd(poor) == worst, f"{gateway.counted_nanousd(poor)} counts, not {worst}")
    return f"spent {shown['spent_nanousd']} and unresolved {shown['unresolved_nanousd']}; budget for one: 504, one call"


def stale_connection(lab: Lab) -> str:
    """A pooled connection that is dead when it is used again: served by a fresh one, and paid once."""
    seen = []
    for kind in ("closed while idle", "closed at the next request", "reset at the next request"):
        upstream = lab.upstream(good())
        gateway = lab.inside(upstream)
        key = gateway.key()
        upstream.script(_closing_after if kind == "closed while idle" else good(), _dying(kind), good())
        statuses = [gateway.chat(key).status for _ in range(2)]
        gateway.wait_quiet()
        rows, shown = gateway.rows(key), gateway.shown(key)
        lab.check(statuses == [200, 200], f"{kind}: answered {statuses}")
        lab.check(len(rows) == 2, f"{kind}: {len(rows)} rows for 2 requests")
        lab.check(shown["unresolved_nanousd"] == 0, f"{kind}: {shown['unresolved_nanousd']} is unresolved")
        meter = upstream.metered_nanousd
        lab.check(shown["spent_nanousd"] == meter, f"{kind}: spent {shown['spent_nanousd']}, billed {meter}")
        seen.append(f"{kind}: {len(upstream.calls)} arrived")
    return "; ".join(seen) + "; each request paid once"


def _closing_after(call: Call) -> None:
    good()(call)
    call.close()


def _dying(kind: str) -> Reply:
    if kind == "closed while idle":
        return good()
    return Call.close if kind == "closed at the next request" else Call.reset


# --- clients that leave -----------------------------------------------------------------------------------------


def client_leaves(lab: Lab) -> str:
    """A client leaves before the first token, or in a stream: the upstream is left within 2 s, what came is paid."""
    upstream = lab.upstream(silent)
    gateway = lab.inside(upstream)
    seen = []
    for kind in ("before the first token", "in a stream"):
        left, written = threading.Event(), threading.Event()
        upstream.script(_until_left(kind, left, written))
        key, meter = gateway.key(), upstream.metered_nanousd
        with client.send_and_leave(gateway.address, client.chat(stream=kind == "in a stream"), key=key):
            lab.check(written.wait(PATIENCE_S), f"{kind}: the upstream was not called")
            started_s = time.monotonic()
        lab.check(left.wait(LEFT_S), f"{kind}: the upstream was not left within {LEFT_S:g} s")
        took_s = time.monotonic() - started_s
        gateway.wait_quiet()
        wait_until(lambda key=key: bool(gateway.rows(key)), "there is no row")  # type: ignore[misc]
        [row], billed = gateway.rows(key), upstream.metered_nanousd - meter
        lab.check(row["exit"] == "client_gone", f"{kind}: the row says {row['exit']}")
        counted = gateway.counted_nanousd(key)
        lab.check(counted >= billed, f"{kind}: the upstream billed {billed}, {counted} counts")
        seen.append(f"{kind}: upstream left after {took_s * 1000:.0f} ms, {counted} counts of {billed} billed")
    return "; ".join(seen)


def _until_left(kind: str, left: threading.Event, written: threading.Event) -> Reply:
    def reply(call: Call) -> None:
        if kind == "in a stream":
            call.bill(7, 3)
            call.begin_stream()
            call.event(ROLE, word(), word(), word())
        written.set()
        if call.left_within(PATIENCE_S):
            left.set()
        call.close()

    return reply


PROBES = (
    Probe("dearer-backup", "money-attempts", dearer_backup),
    Probe("attempts-share-no-hold", "money-attempts", attempts_share_no_hold),
    Probe("stale-connection", "money-attempts", stale_connection),
    Probe("client-leaves", "money-attempts", client_leaves),
)
