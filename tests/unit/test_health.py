"""How deployments are doing: who gets a call, with which credential, and when again."""

import unittest
from typing import Any

from msgspec.structs import replace

from gateway.app import build_fleet
from gateway.config import load
from gateway.config_schema import BreakerConfig, Config, Deployment, RetryConfig
from gateway.health import LONG_PAUSE_S, LONGEST_PAUSE_S, Absence, DeploymentHealth, Entry, Fleet
from tests.support.world import CONFIG


def health(credentials: int = 1, *, threshold: int = 2, cooldown_s: float = 30.0) -> DeploymentHealth:
    """The health of a deployment that nothing is known of yet."""
    return DeploymentHealth(BreakerConfig(threshold, cooldown_s), RetryConfig(), credentials)


def entered(one: DeploymentHealth, now_s: float = 0.0) -> Entry:
    """Leave to call it, which must be given."""
    entry = one.enter(now_s)
    assert entry is not None
    return entry


def fail(one: DeploymentHealth, times: int, now_s: float = 0.0) -> None:
    """Let calls fail in a row."""
    for _ in range(times):
        entered(one, now_s).permit.failure(now_s)


class CredentialsTest(unittest.TestCase):
    """Which credential a call uses."""

    def used(self, one: DeploymentHealth, count: int, now_s: float = 0.0) -> list[int]:
        """The credentials of the next calls."""
        return [entered(one, now_s).credential for _ in range(count)]

    def test_credentials_take_turns(self) -> None:
        """Each as often as the others."""
        self.assertEqual(sorted(self.used(health(3), 3)), [0, 1, 2])
        used = self.used(health(3), 7)
        self.assertEqual(used, (used[:3] * 3)[:7])

    def test_a_provider_without_credentials_counts_as_one(self) -> None:
        """It can be paused like any other."""
        one = health(0)
        self.assertEqual((one.credentials, self.used(one, 2)), (1, [0, 0]))
        one.pause(0, 5.0, Absence.RATE_LIMITED)
        self.assertIsNone(one.enter(0.0))

    def test_a_paused_credential_is_left_out(self) -> None:
        """Until its pause is over, and not a moment longer."""
        one = health(2)
        one.pause(0, 5.0, Absence.RATE_LIMITED)
        self.assertEqual(self.used(one, 3, 4.999), [1, 1, 1])
        self.assertEqual(set(self.used(one, 2, 5.0)), {0, 1})

    def test_a_deployment_is_paused_while_all_of_its_credentials_are(self) -> None:
        """It is told why, and when the first of them is free."""
        one = health(2)
        one.pause(0, 9.0, Absence.QUOTA)
        self.assertEqual((one.absence(0.0), one.wait_s(0.0), one.is_free(0.0)), (None, 0.0, True))
        one.pause(1, 4.0, Absence.RATE_LIMITED)
        self.assertEqual((one.absence(0.0), one.wait_s(1.0), one.is_free(0.0)), (Absence.RATE_LIMITED, 3.0, False))
        self.assertIsNone(one.enter(3.9))
        self.assertEqual((one.absence(4.0), one.wait_s(4.0), one.is_free(4.0)), (None, 0.0, True))
        self.assertEqual(entered(one, 4.0).credential, 1)

    def test_a_longer_pause_stays(self) -> None:
        """A shorter one that comes later does not end it; a longer one takes its place, with its reason."""
        one = health()
        one.pause(0, 9.0, Absence.QUOTA)
        one.pause(0, 4.0, Absence.RATE_LIMITED)
        self.assertEqual((one.absence(5.0), one.wait_s(5.0)), (Absence.QUOTA, 4.0))
        one.pause(0, 60.0, Absence.REFUSED)
        self.assertEqual((one.absence(5.0), one.wait_s(5.0)), (Absence.REFUSED, 55.0))

    def test_it_can_be_asked_for_another_credential(self) -> None:
        """One that has just failed is no choice, whether it is paused or not."""
        one = health(2)
        self.assertTrue(one.is_free(0.0, beside=0))
        one.pause(1, 5.0, Absence.QUOTA)
        self.assertFalse(one.is_free(0.0, beside=0))
        self.assertTrue(one.is_free(0.0, beside=1))
        self.assertTrue(one.is_free(5.0, beside=0))
        self.assertFalse(health(1).is_free(0.0, beside=0))

    def test_a_paused_deployment_takes_no_permit(self) -> None:
        """A half-open breaker keeps its one probe for whoever can call."""
        one = health(threshold=1)
        fail(one, 1)
        one.pause(0, 40.0, Absence.RATE_LIMITED)
        self.assertIsNone(one.enter(35.0))
        self.assertIsNotNone(one.enter(40.0))
        self.assertIsNone(one.enter(40.0))


class BreakerTest(unittest.TestCase):
    """Pauses beside the breaker."""

    def test_failures_in_a_row_open_it(self) -> None:
        """Whatever credential they used."""
        one = health(2)
        fail(one, 2)
        self.assertEqual((one.absence(0.0), one.wait_s(10.0), one.is_free(0.0)), (Absence.OPEN, 20.0, False))
        self.assertIsNone(one.enter(29.9))

    def test_the_longer_of_pause_and_breaker_is_waited_for(self) -> None:
        """A pause is what people are told."""
        one = health()
        fail(one, 2)
        one.pause(0, 10.0, Absence.QUOTA)
        self.assertEqual((one.wait_s(0.0), one.absence(0.0)), (30.0, Absence.QUOTA))
        self.assertEqual((one.wait_s(12.0), one.absence(12.0)), (18.0, Absence.OPEN))
        one.pause(0, 50.0, Absence.QUOTA)
        self.assertEqual(one.wait_s(0.0), 50.0)

    def test_its_state_is_one_word(self) -> None:
        """Of the breaker, unless it is paused."""
        one = health()
        self.assertEqual(one.state(0.0), "closed")
        fail(one, 2)
        self.assertEqual((one.state(0.0), one.state(30.0)), ("open", "half_open"))
        one.pause(0, 40.0, Absence.REFUSED)
        self.assertEqual((one.state(30.0), one.state(40.0)), ("refused", "half_open"))
        entered(one, 40.0).permit.success(40.0)
        self.assertEqual(one.state(40.0), "closed")
        one.pause(0, 41.0, Absence.QUOTA)
        self.assertEqual(one.state(40.0), "quota_exhausted")
        one.pause(0, 42.0, Absence.RATE_LIMITED)
        self.assertEqual(one.state(40.0), "rate_limited")

    def test_a_change_of_state_is_news_once(self) -> None:
        """Whoever asks again hears nothing until it changes again."""
        one = health(threshold=1)
        entry = entered(one)
        self.assertIsNone(one.news(0))
        entry.permit.failure(0)
        self.assertEqual([one.news(0), one.news(0), one.news(30), one.news(31)], ["open", None, "half_open", None])
        entered(one, 31).permit.success(32)
        self.assertEqual([one.news(32), one.news(33)], ["closed", None])
        one.pause(0, 40, Absence.QUOTA)
        self.assertEqual([one.news(33), one.news(34), one.news(40)], ["quota_exhausted", None, "closed"])

    def test_a_released_permit_says_nothing(self) -> None:
        """The failures in a row stay what they were."""
        one = health()
        fail(one, 1)
        entered(one).permit.release(0.0)
        self.assertEqual(one.state(0.0), "closed")
        fail(one, 1)
        self.assertEqual(one.state(0.0), "open")

    def test_each_deployment_has_retries_of_its_own(self) -> None:
        """As the configuration says."""
        one = DeploymentHealth(BreakerConfig(), RetryConfig(budget_percent=0, budget_floor=1), 1)
        self.assertEqual([one.retries.take(0.0), one.retries.take(0.0)], [True, False])

    def test_the_pauses_are_in_proportion(self) -> None:
        """A long one is soon over, and none lasts for hours."""
        self.assertEqual((LONG_PAUSE_S, LONGEST_PAUSE_S), (60, 3600))


TWO = (
    CONFIG.replace('dialect = "fake"', 'dialect = "fake"\napi_key_env = ["A", "B"]')
    + """
quarantine_on_overage = true

[[deployments]]
name = "other"
provider = "up"
model = "gw-mini"
price = { input = 1, output = 4 }
"""
)


class FleetTest(unittest.TestCase):
    """All deployments together, and what a reload keeps."""

    def setUp(self) -> None:
        self.config = load(TWO, {"A": "a", "B": "b"})
        self.fleet = build_fleet(self.config)

    def mini(self, **changes: Any) -> Config:
        """The configuration with a changed deployment `mini`."""
        deployments = self.config.deployments
        return replace(self.config, deployments=deployments | {"mini": replace(deployments["mini"], **changes)})

    def reloaded(self, config: Config) -> Fleet:
        """The fleet after a reload."""
        fleet = build_fleet(config)
        fleet.succeed(self.fleet)
        return fleet

    def test_a_deployment_has_as_many_credentials_as_its_provider(self) -> None:
        """And each has a health of its own."""
        self.assertEqual(self.fleet["mini"].credentials, 2)
        self.assertIsNot(self.fleet["mini"], self.fleet["other"])
        with self.assertRaises(KeyError):
            self.fleet["nobody"]

    def test_states_are_told_by_name(self) -> None:
        """In the order of the file."""
        for credential in (0, 1):
            self.fleet["other"].pause(credential, 5.0, Absence.QUOTA)
        self.assertEqual(list(self.fleet.states(0.0).items()), [("mini", "closed"), ("other", "quota_exhausted")])

    def test_who_bills_more_than_a_hold_is_remembered(self) -> None:
        """And taken out of service if so configured."""
        mini, other = self.config.deployments.values()
        self.assertEqual((self.fleet.overbilled, list(self.fleet.in_service((mini, other)))), ((), [mini, other]))
        self.fleet.flag("other")
        self.fleet.flag("mini")
        self.assertEqual(self.fleet.overbilled, ("mini", "other"))
        self.assertEqual(list(self.fleet.in_service((mini, other))), [other])

    def test_a_reload_keeps_what_is_known_of_the_unchanged(self) -> None:
        """Its health is the very same: calls in flight answer to it."""
        fleet = self.reloaded(load(TWO, {"A": "a", "B": "b"}))
        for name in ("mini", "other"):
            self.assertIs(fleet[name], self.fleet[name])

    def test_what_has_changed_begins_anew(self) -> None:
        """The deployment, its provider with the credentials, or the rules of breakers and retries."""
        fleet = self.reloaded(self.mini(model="gw-next"))
        self.assertIsNot(fleet["mini"], self.fleet["mini"])
        self.assertIs(fleet["other"], self.fleet["other"])
        for changed in (
            load(TWO, {"A": "a", "B": "changed"}),
            load(TWO, {"A": "a"}),
            replace(self.config, breaker=BreakerConfig(7)),
            replace(self.config, retry=RetryConfig(7)),
        ):
            fleet = self.reloaded(changed)
            self.assertIsNot(fleet["mini"], self.fleet["mini"])
            self.assertIsNot(fleet["other"], self.fleet["other"])

    def test_a_deployment_that_is_gone_is_gone(self) -> None:
        """A new one is unknown."""
        deployments = dict(self.config.deployments)
        new: Deployment = replace(deployments.pop("other"), name="new")
        fleet = self.reloaded(replace(self.config, deployments=deployments | {"new": new}))
        self.assertEqual(list(fleet.states(0.0)), ["mini", "new"])

    def test_an_overbilled_deployment_stays_so(self) -> None:
        """Whatever was changed: only a restart forgets it."""
        self.fleet.flag("mini")
        changed = self.mini(model="gw-next")
        fleet = self.reloaded(changed)
        self.assertEqual(list(fleet.in_service([changed.deployments["mini"]])), [])
        self.assertEqual(build_fleet(self.config).overbilled, ())

    def test_a_call_that_a_reload_finds_under_way_is_still_judged(self) -> None:
        """Its request knows the former fleet; what it billed is known to both."""
        fleet = self.reloaded(self.config)
        self.fleet.flag("mini")
        self.assertEqual(fleet.overbilled, ("mini",))
        self.assertEqual(list(fleet.in_service([self.config.deployments["mini"]])), [])


if __name__ == "__main__":
    unittest.main()
