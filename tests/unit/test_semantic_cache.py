"""The semantic cache as a request meets it: who is answered in other words, what is learnt, and what it never does."""

import json
import os
import subprocess
import sys
import unittest
from unittest import mock

from msgspec.structs import replace

from gateway import semantic_cache
from gateway.commands import CommandError
from gateway.drive import drive
from gateway.errors import AllProvidersFailed, ModelNotAllowed, Overloaded, RateLimited
from gateway.fake_provider import FakeProvider
from gateway.keys import ShownKey
from gateway.semantic import verifier
from gateway.semantic.verifier import read
from gateway.semantic_cache import MOST_WORDINGS, Asked, Found
from gateway.shadow import MOST_HITS
from tests.support.semantic import ASKED, ON, SemanticCase
from tests.support.world import CONFIG, RealWorld, chat

OTHER_WORDS = "what is the capital of france, please"
THERE, BACK = "How do I get from Paris to Rome?", "How do I get from Rome to Paris?"
"""One canonical key, two questions."""

SHADOW = "[cache]\nsemantic = true\nsemantic_mode = 'shadow'\n"
USER = {"role": "user", "content": ASKED}
ENV = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


class HitTest(SemanticCase):
    """What a hit is."""

    def test_the_same_question_in_other_words_gets_the_same_answer(self) -> None:
        """It costs nothing, needs no budget, is a row of its own, and says whose answer it is and how old."""
        self.assertEqual(self.ask(), ("miss", "answer 0"))
        self.clock.advance(7)
        answer = self.gateway.handle(self.world.key("0"), chat(OTHER_WORDS, temperature=0))
        told = {name: answer[name] for name in ("cache", "text", "exit", "cost_nanousd", "attempts", "deployment")}
        self.assertEqual(
            told,
            {
                "cache": "semantic",
                "text": "answer 0",
                "exit": "cache_hit",
                "cost_nanousd": 0,
                "attempts": 0,
                "deployment": "mini",
            },
        )
        row = self.world.rows()[-1]
        self.assertEqual(
            (row["exit"], row["cache"], row["state"], row["cost_nanousd"]), ("cache_hit", "semantic", "none", 0)
        )
        self.assertEqual(len(self.upstream.calls), 1)
        self.assertEqual(self.counted("lookups"), {"miss": 1, "hit": 1})

    def test_the_exact_cache_goes_first(self) -> None:
        """Its counters do not see what is looked up in other words."""
        self.ask()
        self.ask(OTHER_WORDS)
        self.assertEqual(self.ask(), ("hit", "answer 0"))
        stats = self.books.cache.stats()
        self.assertEqual((stats["hits"], stats["misses"]), (1, 2))
        self.assertEqual(self.counted("lookups"), {"miss": 1, "hit": 1})

    def test_streams_and_whole_answers_share(self) -> None:
        """Either may come first."""
        self.assertEqual(self.stream(ASKED), "answer 0")
        self.assertEqual(self.ask(OTHER_WORDS), ("semantic", "answer 0"))
        self.assertEqual(self.ask(THERE), ("miss", "answer 1"))
        self.assertEqual(self.stream(THERE.lower() + " please", stream_options={"include_usage": True}), "answer 1")
        self.assertEqual(self.counted("lookups"), {"miss": 2, "hit": 2})

    def test_the_age_and_the_name_of_the_answer_are_told(self) -> None:
        """The same name for both kinds of hits; it is not the key of anything."""
        self.ask()
        self.clock.advance(7)
        entries = []
        for text, kind in ((ASKED, "hit"), (OTHER_WORDS, "semantic")):
            facts = self.gateway.new_facts()
            context = self.gateway.context(
                self.gateway.authenticate(ShownKey.of(self.key)),
                json.dumps(chat(text, temperature=0)).encode(),
                mock.Mock(),
                facts=facts,
            )
            drive(self.gateway.serve(context))
            self.assertEqual((facts.cache, facts.age_s), (kind, 7))
            entries.append(facts.entry)
        self.assertRegex(entries[0] or "", "^[0-9a-f]{16}$")
        self.assertEqual(entries[0], entries[1])

    def test_one_text_may_be_a_list(self) -> None:
        """As clients write it; the two forms do not share, as in the exact cache."""
        parts = [{"type": "text", "text": ASKED}]
        self.assertEqual(self.ask(messages=[{"role": "user", "content": parts}]), ("miss", "answer 0"))
        other = [{"role": "user", "content": [{"type": "text", "text": OTHER_WORDS}]}]
        self.assertEqual(self.ask(messages=other), ("semantic", "answer 0"))
        self.assertEqual(self.ask(OTHER_WORDS), ("miss", "answer 1"))

    def test_questions_of_one_key_live_side_by_side(self) -> None:
        """Each is verified; the newest few are kept."""
        self.assertEqual(self.ask(THERE), ("miss", "answer 0"))
        self.assertEqual(self.ask(BACK), ("miss", "answer 1"))
        self.assertEqual(self.ask(THERE.lower() + " please"), ("semantic", "answer 0"))
        self.assertEqual(self.ask(BACK.lower() + " please"), ("semantic", "answer 1"))
        self.assertEqual(sum(self.counted("vetoes").values()), 2)
        self.assertEqual(self.counted("lookups"), {"miss": 1, "vetoed": 1, "hit": 2})
        self.assertEqual(self.semantic.stats()["entries"] or 1, 1)

    def test_a_key_keeps_few_wordings(self) -> None:
        """The newest, so that no look-up is long."""
        asked = drive(self.semantic.ask([USER], "acme", lambda message: b"p" * 32))
        for number in range(MOST_WORDINGS + 2):
            assert asked is not None
            self.semantic.remember(replace(asked, question=read(f"{ASKED}{'?' * number}")))
            asked = drive(self.semantic.ask([USER], "acme", lambda message: b"p" * 32))
        assert asked is not None
        self.assertEqual(
            [wording.question.text for wording in asked.wordings],
            [f"{ASKED}{'?' * number}" for number in range(MOST_WORDINGS + 1, 1, -1)],
        )

    def test_a_wording_that_is_answered_again_is_kept_once(self) -> None:
        """So that nobody's many fresh answers push out the other wordings of a key."""
        self.ask(THERE)
        for _ in range(MOST_WORDINGS):
            self.ask(BACK, cache={"no-cache": True})
        self.assertEqual(self.ask(THERE.lower() + " please"), ("semantic", "answer 0"))

    def test_a_hit_needs_room_as_any_other(self) -> None:
        """Else it is refused, and not served from what there is not."""
        self.ask()
        with mock.patch("llmkit.room.Claim.covers", return_value=False), self.assertRaises(Overloaded):
            self.ask(OTHER_WORDS)

    def test_a_question_is_kept_as_it_was_read(self) -> None:
        """Names, quotes, numbers, tenses, and what JSON has to escape; of a text that is none, nothing."""
        for number, text in enumerate(
            (
                THERE,
                'Who said "I\'ll be back" in 1984?',
                "Is NATO in Turkey or is turkey in NATO?",
                "should I not have paid £5.50 / 3 %?",
                "caf\u00e9 na\u00efve \u2028 \\ \x00",
                "the",
            )
        ):
            key, question = bytes([number]) * 32, read(text)
            asked = Asked("acme", 0, key, b"p" * 32, question, (), lambda other: b"")
            self.semantic.remember(asked)
            row = drive(self.semantic._index.find(key, "acme"))
            assert row is not None
            self.assertEqual([wording.question for wording in semantic_cache._unpack(row.body)], [question])
        self.semantic.remember(replace(asked, question=read("caf\ud83d")))
        self.assertIsInstance(self.world.errors.pop(), UnicodeEncodeError)


class RightsTest(SemanticCase):
    """Who may be answered so, and when."""

    def test_it_is_off_unless_somebody_turns_it_on(self) -> None:
        """The tenant, the alias or [cache]; one that says no is enough."""
        alias = '\n[[aliases]]\nname = "fast"\ndeployments = ["mini"]\n'
        tenant = '\n[[tenants]]\nname = "acme"\n'
        yes, no = "semantic = true\n", "semantic = false\n"
        for config, model, used in (
            (CONFIG, "mini", False),
            (f"[cache]\n{no}{CONFIG}{tenant}{yes}", "mini", False),
            (f"{CONFIG}{tenant}{yes}", "mini", True),
            (f"{ON}{CONFIG}{tenant}{no}", "mini", False),
            (f"{CONFIG}{alias}{yes}", "fast", True),
            (f"{CONFIG}{alias}{yes}", "mini", False),
            (f"{ON}{CONFIG}{alias}{no}", "fast", False),
            (f"{CONFIG}{tenant}{yes}{alias}{no}", "fast", False),
        ):
            with self.subTest(config=config.replace(CONFIG, ""), model=model):
                gateway = self.reloaded(config)
                self.ask(gateway=gateway, model=model)
                self.assertEqual(self.ask(OTHER_WORDS, gateway=gateway, model=model)[0] == "semantic", used)
                self.world.run("cache.purge", all=True)

    def test_a_process_that_never_used_it_has_no_file(self) -> None:
        """And a command finds one that is there."""
        with RealWorld() as world:
            self.assertIsNone(world.books.semantic)
            self.assertFalse((world.path / "words.db").exists())
            self.assertNotIn("semantic", world.run("cache.stats"))
        self.ask()
        self.process.close()
        with RealWorld(folder=self.folder, clock=self.clock) as world:
            self.assertEqual(world.run("cache.stats")["semantic"]["entries"], 1)
            world.run("cache.purge", tenant="acme")
            self.assertEqual(world.run("cache.stats")["semantic"]["entries"], 0)

    def test_what_the_exact_cache_does_not_take_is_not_looked_up(self) -> None:
        """No explicit zero, tools, several choices, privacy."""
        self.ask()
        tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
        for fields in ({"temperature": 1}, {"temperature": None}, {"tools": [tool]}, {"n": 2}, {"private": True}):
            self.assertEqual(self.ask(OTHER_WORDS, **fields)[0], "bypass", fields)
        self.assertEqual(self.counted("lookups"), {"miss": 1})

    def test_a_client_may_ask_for_a_fresh_answer(self) -> None:
        """no-cache is not answered, and teaches; no-store may be answered, and teaches nothing."""
        self.ask()
        self.assertEqual(self.ask(OTHER_WORDS, cache={"no-cache": True}), ("bypass", "answer 1"))
        self.assertEqual(self.ask(OTHER_WORDS), ("hit", "answer 1"))
        self.assertEqual(self.ask(OTHER_WORDS + "!", cache={"no-store": True})[0], "semantic")
        self.assertEqual(self.ask(THERE, cache={"no-store": True}), ("miss", "answer 2"))
        self.assertEqual(self.ask(THERE.lower()), ("miss", "answer 3"))

    def test_a_hit_obeys_limits_and_permissions(self) -> None:
        """It takes its unit of the rate; a name that may not be asked for stays forbidden."""
        tenant = '\n[[tenants]]\nname = "acme"\nmodels = [%s]\nrate_per_s = 0.001\nburst = 2\n'
        gateway = self.reloaded(ON + CONFIG + tenant % '"mini"')
        self.ask(gateway=gateway)
        self.assertEqual(self.ask(OTHER_WORDS, gateway=gateway)[0], "semantic")
        with self.assertRaises(RateLimited):
            self.ask(OTHER_WORDS, gateway=gateway)
        with self.assertRaises(ModelNotAllowed):
            self.ask(OTHER_WORDS, gateway=self.reloaded(ON + CONFIG + tenant % '"other"'))
        self.assertEqual(self.ask(OTHER_WORDS, gateway=self.reloaded(ON + CONFIG + tenant % '"m*"'))[0], "miss")

    def test_requests_without_one_question_are_counted(self) -> None:
        """A conversation, something beside the text, and what the rules for questions refuse."""
        image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
        conversation = [USER, {"role": "assistant", "content": "?"}, USER]
        self.ask(messages=conversation)
        self.ask(messages=[{"role": "user", "content": [{"type": "text", "text": ASKED}, image]}])
        self.ask(ASKED * 500)
        counted = self.counted("ineligible")
        self.assertEqual((counted["turns"], counted["content"], sum(counted.values())), (1, 1, 3))
        self.assertEqual((self.counted("lookups"), self.semantic.stats()["stored"]), ({}, 0))


class LifeTest(SemanticCase):
    """How long a wording is found."""

    config = "[cache]\nsemantic = true\nexact_ttl_s = 1000\nsemantic_ttl_s = 100\n" + CONFIG

    def test_a_wording_lives_for_its_own_time(self) -> None:
        """Though its answer lives longer; chance takes a tenth at most."""
        self.ask()
        self.clock.advance(89)
        self.assertEqual(self.ask(OTHER_WORDS)[0], "semantic")
        self.clock.advance(11)
        self.assertEqual(self.ask(OTHER_WORDS), ("miss", "answer 1"))
        self.assertEqual(self.ask(), ("hit", "answer 0"))

    def test_a_newer_wording_keeps_no_older_one_alive(self) -> None:
        """They lie under one key, each with its own end."""
        self.ask(THERE)
        self.clock.advance(80)
        self.ask(BACK)
        self.clock.advance(20)
        self.assertEqual(self.ask(THERE.lower() + " please"), ("miss", "answer 2"))
        self.assertEqual(self.ask(BACK.lower() + " please"), ("semantic", "answer 1"))

    def test_an_answer_dies_when_its_client_wanted_it_to(self) -> None:
        """Under its wording, and beside an older one that lives on."""
        self.ask(THERE)
        self.ask(BACK, cache={"ttl": 5})
        self.clock.advance(6)
        self.assertEqual(self.ask(BACK.lower() + " please"), ("miss", "answer 2"))
        self.assertEqual(self.ask(THERE.lower() + " please"), ("semantic", "answer 0"))

    def test_an_answer_that_is_gone_is_not_served(self) -> None:
        """Its wording alone is worth nothing."""
        self.ask(cache={"ttl": 50})
        drive(self.books.cache.purge(None))
        self.assertEqual(self.ask(OTHER_WORDS), ("miss", "answer 1"))
        self.ask(THERE)
        self.books.cache.flush()
        with mock.patch.object(self.books.cache, "find", mock.AsyncMock(return_value=None)):
            self.assertEqual(self.ask(THERE.lower() + " please"), ("miss", "answer 3"))
        self.assertEqual(self.counted("lookups"), {"miss": 3, "gone": 1})

    def test_a_restart_loses_nothing(self) -> None:
        """A version of the verifier that is another finds nothing of the former."""
        self.ask()
        self.restart()
        self.assertEqual(self.ask(OTHER_WORDS), ("semantic", "answer 0"))
        with mock.patch.object(semantic_cache, "VERSION", verifier.VERSION + 1):
            self.assertEqual(self.ask(OTHER_WORDS), ("miss", "answer 1"))

    def test_a_purge_forgets_questions_too(self) -> None:
        """Of one tenant, or of all."""
        rival = self.world.key("5", tenant="rival")
        self.ask()
        self.ask(key=rival)
        self.world.run("cache.purge", tenant="acme")
        self.assertEqual(self.semantic.stats()["entries"], 1)
        self.assertEqual(self.ask(OTHER_WORDS)[0], "miss")
        self.assertEqual(self.ask(OTHER_WORDS, key=rival)[0], "semantic")
        self.world.run("cache.purge", all=True)
        self.assertEqual(self.semantic.stats()["entries"], 0)
        self.assertEqual(self.ask(OTHER_WORDS, key=rival)[0], "miss")

    def test_an_answer_that_was_asked_for_before_a_purge_teaches_nothing(self) -> None:
        """However late it comes."""
        asked = drive(self.semantic.ask([USER], "acme", lambda message: b"p" * 32))
        assert asked is not None
        drive(self.semantic.purge("acme"))
        self.semantic.remember(asked)
        again = drive(self.semantic.ask([USER], "acme", lambda message: b"p" * 32))
        self.assertEqual(again and again.wordings, ())
        self.semantic.flush()
        self.assertEqual(self.semantic.stats()["entries"], 0)


class BoundTest(SemanticCase):
    """Two questions in each partition."""

    config = "[cache]\nsemantic = true\nsemantic_max_entries = 2\n" + CONFIG

    def test_a_partition_pushes_out_its_own(self) -> None:
        """The least recently used; another system prompt is another partition."""
        system = [{"role": "system", "content": "be kind"}, USER]
        self.ask(messages=system)
        for text in (ASKED, THERE):
            self.ask(text)
            self.semantic.flush()
        self.ask(OTHER_WORDS)
        self.semantic.flush()
        self.ask("How many legs does a spider have?")
        self.semantic.flush()
        self.assertEqual(self.ask(THERE.lower() + " please")[0], "miss")
        self.assertEqual(self.semantic.stats()["evicted"], 1)
        again = [system[0], {"role": "user", "content": OTHER_WORDS}]
        self.assertEqual(self.ask(messages=again)[0], "semantic")


class ShadowTest(SemanticCase):
    """The mode that serves nothing."""

    config = SHADOW + CONFIG
    answers = tuple({"text": text} for text in ("Paris", "Paris", "PARIS!", "Paris"))

    def test_nothing_is_served_and_everything_is_counted(self) -> None:
        """Whole or streamed; what would have been served is compared with what came."""
        self.ask()
        self.assertEqual(self.ask(OTHER_WORDS), ("miss", "Paris"))
        self.assertEqual(self.stream(OTHER_WORDS + "!"), "PARIS!")
        self.assertEqual(len(self.upstream.calls), 3)
        self.assertEqual(self.counted("lookups"), {"miss": 1, "shadowed": 2})
        self.assertEqual(self.counted("comparisons"), {"equal": 1, "different": 1})
        self.assertEqual({row["cache"] for row in self.world.rows()}, {"miss"})

    def test_the_log_says_what_would_have_been_served(self) -> None:
        """By names and digests; never a word of a prompt or an answer."""
        self.ask()
        self.ask(OTHER_WORDS)
        ((request, entry, question, judged),) = self.withheld
        self.assertEqual(request, self.world.rows()[-1]["request_id"])
        self.assertRegex(entry, "^[0-9a-f]{16}$")
        self.assertRegex(question, "^[0-9a-f]{16}$")
        self.assertFalse(judged)
        served = self.reloaded(ON + CONFIG)
        self.assertEqual(self.ask("PLEASE, " + OTHER_WORDS, gateway=served)[0], "semantic")
        self.assertEqual(len(self.withheld), 1)

    def shown(self, **arguments: str) -> list[tuple[str, str, bool | None]]:
        """Which questions were taken for one, and whether they were answered alike, as the command tells it."""
        told = self.world.run("cache.shadow", **arguments)
        return [(hit["asked"], hit["stored"], hit["equal"]) for hit in told]

    def test_an_operator_is_shown_which_questions_were_taken_for_one(self) -> None:
        """Oldest first, with the answer that was withheld, and whether the upstream then said the same."""
        self.ask(THERE)
        self.clock.advance(7)
        self.ask(THERE.lower() + " please")
        self.ask(THERE + "!")
        first, second = self.world.run("cache.shadow")
        (request_id, entry, _, _), _ = self.withheld
        expected = {"at_ms": self.clock.wall_ms(), "tenant": "acme", "request_id": request_id, "entry": entry}
        expected |= {"judged": False, "asked": THERE.lower() + " please", "stored": THERE, "equal": True}
        self.assertEqual(first, expected)
        self.assertEqual((second["asked"], second["equal"]), (THERE + "!", False))

    def test_each_tenant_is_shown_alone(self) -> None:
        """Or all together; one that is not there is refused."""
        rival = self.world.key("5", tenant="rival")
        for key in (self.key, rival):
            self.ask(key=key)
            self.ask(OTHER_WORDS, key=key)
        self.assertEqual([hit["tenant"] for hit in self.world.run("cache.shadow")], ["acme", "rival"])
        self.assertEqual([hit["tenant"] for hit in self.world.run("cache.shadow", tenant="rival")], ["rival"])
        with self.assertRaisesRegex(CommandError, "nobody"):
            self.world.run("cache.shadow", tenant="nobody")

    def test_only_the_last_are_shown(self) -> None:
        """The oldest is let go for a new one."""
        self.ask()
        for number in range(MOST_HITS + 2):
            self.ask(OTHER_WORDS + "!" * number)
        told = self.shown()
        self.assertEqual(len(told), MOST_HITS)
        self.assertEqual((told[0][0], told[-1][0]), (OTHER_WORDS + "!!", OTHER_WORDS + "!" * (MOST_HITS + 1)))

    def test_what_may_not_be_kept_is_not_shown(self) -> None:
        """It is counted and logged by its digest."""
        self.ask()
        self.ask(OTHER_WORDS, cache={"no-store": True})
        self.assertEqual((self.shown(), len(self.withheld)), ([], 1))
        self.assertEqual(self.counted("lookups"), {"miss": 1, "shadowed": 1})

    def test_an_answer_that_never_came_was_not_compared(self) -> None:
        """Nor one that is not kept."""
        self.ask()
        self.upstream = FakeProvider([{"status": 500}, {"text": "Par", "finish_reason": "length"}], name="up")
        self.gateway = self.reloaded(self.config)
        with self.assertRaises(AllProvidersFailed):
            self.ask(OTHER_WORDS)
        self.ask(OTHER_WORDS + "!")
        self.assertEqual([equal for *_, equal in self.shown()], [None, None])

    def test_a_reload_forgets_nothing_that_was_shown(self) -> None:
        """Also one into the mode that serves; a restart does."""
        self.ask()
        self.ask(OTHER_WORDS)
        served = self.reloaded(ON + CONFIG)
        self.assertEqual(self.ask("PLEASE, " + OTHER_WORDS, gateway=served)[0], "semantic")
        self.assertEqual(self.shown(), [(OTHER_WORDS, ASKED, True)])
        self.restart()
        self.assertEqual(self.shown(), [])

    def test_a_purge_forgets_what_was_shown(self) -> None:
        """Of its tenant, or of all, and what was asked before it."""
        rival = self.world.key("5", tenant="rival")
        for key in (self.key, rival):
            self.ask(key=key)
            self.ask(OTHER_WORDS, key=key)
        asked = drive(self.semantic.ask([USER], "acme", lambda message: b"p" * 32))
        self.world.run("cache.purge", tenant="acme")
        self.assertEqual([hit["tenant"] for hit in self.world.run("cache.shadow")], ["rival"])
        assert asked is not None
        found = Found(mock.Mock(), asked.question)
        self.semantic.note_shadow(asked, found, request_id="req_late", entry="late")
        self.assertEqual([hit["tenant"] for hit in self.world.run("cache.shadow")], ["rival"])
        self.world.run("cache.purge", all=True)
        self.assertEqual(self.shown(), [])

    def test_the_questions_are_nowhere_else(self) -> None:
        """Not in the counts, which become metrics, and not in what the log is told."""
        self.ask()
        self.ask(OTHER_WORDS)
        told = json.dumps([self.world.run("cache.stats"), self.withheld])
        self.assertNotIn("france", told.lower())

    def test_there_is_nothing_to_show_where_it_was_never_opened(self) -> None:
        """And that is said."""
        with RealWorld() as world, self.assertRaisesRegex(CommandError, "not turned on"):
            world.run("cache.shadow")


class TroubleTest(SemanticCase):
    """A verifier, or a file, that is not what it should be."""

    def test_a_verifier_that_fails_costs_no_request(self) -> None:
        """Wherever it fails; somebody is told."""
        self.ask()
        for name in ("read_eligible", "verify"):
            bug = ValueError(name)
            with mock.patch.object(semantic_cache, name, side_effect=bug):
                self.assertEqual(self.ask(OTHER_WORDS, cache={"no-store": True})[0], "miss")
            self.assertEqual(self.world.errors.pop(), bug)
        self.assertEqual(self.ask(OTHER_WORDS), ("semantic", "answer 0"))

    def test_a_wording_that_somebody_planted_is_verified_as_any_other(self) -> None:
        """The index cannot make two questions one, whatever it holds."""
        for planted in (THERE, ASKED):
            asked = drive(self.semantic.ask([{**USER, "content": BACK}], "acme", lambda message: b"p" * 32))
            assert asked is not None
            self.semantic.remember(replace(asked, question=read(planted)))
            asked = drive(self.semantic.ask([{**USER, "content": BACK}], "acme", lambda message: b"p" * 32))
            assert asked is not None
            self.assertEqual(asked.wordings[0].question.text, planted)
            with mock.patch.object(self.books.cache, "find", self.fail):
                self.assertIsNone(drive(self.semantic.find(asked, serve=True)))

    def test_a_row_of_another_key_or_tenant_is_not_read(self) -> None:
        """A file that was tampered with, row by row."""
        self.ask()
        self.ask(THERE)
        self.semantic.flush()
        index = self.semantic._index
        file = index._file
        assert file is not None
        file._writer.execute(
            "UPDATE entries SET sealed = (SELECT sealed FROM entries other WHERE other.id <> entries.id LIMIT 1)"
        )
        self.assertEqual(self.ask(OTHER_WORDS), ("miss", "answer 2"))
        self.assertEqual(self.counted("lookups"), {"miss": 3})

    def test_a_damaged_index_is_only_a_miss(self) -> None:
        """And is replaced, without harm to the answers."""
        self.ask()
        self.semantic.flush()
        self.process.close()
        (self.folder / "words.db").write_bytes(b"no database" * 1000)
        self.start()
        self.assertEqual(self.ask(OTHER_WORDS), ("miss", "answer 1"))
        self.assertEqual(self.ask(), ("hit", "answer 0"))
        self.assertEqual(self.ask("PLEASE, " + OTHER_WORDS), ("semantic", "answer 1"))

    def test_an_index_that_cannot_be_purged_keeps_no_answer_alive(self) -> None:
        """They are purged first; that their questions are not is told."""
        self.ask()
        self.semantic.close()
        with self.assertRaisesRegex(
            CommandError, "answers were purged, but their questions are still kept: .* not open"
        ):
            self.world.run("cache.purge", all=True)
        self.assertEqual(self.ask()[0], "miss")


class ExplainTest(unittest.TestCase):
    """What an operator is told of two texts."""

    def test_a_verdict_and_its_reasons(self) -> None:
        """Plain JSON values."""
        same = semantic_cache.explain(ASKED, OTHER_WORDS)
        self.assertEqual((same["same"], same["veto"], same["asked_ineligible"]), (True, None, None))
        self.assertEqual((same["may_be_judged"], same["bar"]), (False, None))
        judged = semantic_cache.explain("How do I cancel my gym plan?", "How do I end my gym plan?")
        self.assertEqual((judged["may_be_judged"], judged["bar"]), (True, None))
        other = json.loads(json.dumps(semantic_cache.explain(THERE, BACK * 200)))
        self.assertFalse(other["same"])
        self.assertTrue(other["veto"])
        self.assertEqual((other["may_be_judged"], other["bar"]), (False, "turn"))
        self.assertTrue(other["stored_ineligible"])


class StartTest(unittest.TestCase):
    """What a start does not pay for."""

    def test_a_gateway_without_it_does_not_load_the_verifier(self) -> None:
        """Its rules take as long to load as all else of the process."""
        heavy = "{'gateway.semantic.verifier', 'gateway.judging', 'gateway.nearest', 'llmkit.embed'}"
        loaded = f"import sys, gateway.api, gateway.cli; sys.exit(bool({heavy} & sys.modules.keys()))"
        self.assertEqual(subprocess.run([sys.executable, "-c", loaded], check=False, env=ENV).returncode, 0)
