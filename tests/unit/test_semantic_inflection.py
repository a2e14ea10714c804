"""Inflection: which forms are one word, and which are two."""

import unittest

from gateway.semantic.inflection import KEPT, form_of

BASES = (
    "user=users box=boxes process=processes church=churches wish=wishes city=cities tax=taxes size=sizes prize=prizes"
    " axe=axes ache=aches bus=buses child=children cookie=cookies foot=feet goose=geese hero=heroes lie=lies man=men"
    " mouse=mice movie=movies person=people pie=pies potato=potatoes quiz=quizzes tooth=teeth tie=ties tomato=tomatoes"
    " woman=women house=houses shoe=shoes bus=bus glass=glass crisis=crisis virus=virus"
)

PASTS = (
    "eat=ate beat=beaten begin=began begin=begun bite=bitten buy=bought break=broke break=broken bring=brought"
    " build=built come=came catch=caught choose=chose choose=chosen drink=drank draw=drawn draw=drew drive=driven"
    " drive=drove eat=eaten fall=fallen fly=flew fly=flown forget=forgot forget=forgotten fight=fought give=gave"
    " give=given go=gone grow=grew grow=grown hear=heard hold=held hide=hidden keep=kept know=knew know=known lose=lost"
    " make=made meet=met pay=paid run=ran say=said sing=sang send=sent show=shown sleep=slept sell=sold spend=spent"
    " speak=spoke speak=spoken steal=stole steal=stolen sing=sung take=taken teach=taught think=thought throw=threw"
    " throw=thrown tell=told take=took understand=understood use=used go=went win=won write=written write=wrote"
    # regular: an e is found again, a doubled letter and a y too
    " visit=visited hope=hoped hop=hopped plan=planned plane=planed scare=scared scar=scarred file=filed fill=filled"
    " try=tried love=loved force=forced change=changed charge=charged judge=judged manage=managed enable=enabled"
    " settle=settled handle=handled purchase=purchased nurse=nursed rinse=rinsed promise=promised close=closed"
    " confuse=confused continue=continued realize=realized smuggle=smuggled sample=sampled tackle=tackled"
    " fatigue=fatigued sue=sued die=died create=created delete=deleted complete=completed include=included"
    " require=required prepare=prepared locate=located rotate=rotated decide=decided define=defined"
    " measure=measured upgrade=upgraded describe=described treat=treated float=floated avoid=avoided"
    " load=loaded explain=explained join=joined repair=repaired appear=appeared show=showed fix=fixed"
    " play=played"
)

PROGRESSIVES = (
    "visit=visiting hope=hoping hop=hopping plan=planning plane=planing care=caring fill=filling file=filing"
    " buzz=buzzing kiss=kissing"
)

ALONE = "bed red sing bring spring seed need king news was is gas this his -ing c3pos über"


def pairs(table: str) -> list[tuple[str, str]]:
    """Base and form of `base=form base=form`."""
    return [(base, form) for base, form in (row.split("=") for row in table.split())]


class InflectionTest(unittest.TestCase):
    """The base of a word, and its mark."""

    def test_plurals_and_third_persons_are_the_base(self) -> None:
        """Without a mark."""
        for base, form in pairs(BASES):
            with self.subTest(form=form):
                self.assertEqual(form_of(form), (base, ""))

    def test_pasts_are_the_base_with_a_mark(self) -> None:
        """Regular and not."""
        for base, form in pairs(PASTS):
            with self.subTest(form=form):
                self.assertEqual(form_of(form), (base, "~ed"))

    def test_ing_forms_are_the_base_with_a_mark(self) -> None:
        """A process is not processing."""
        for base, form in pairs(PROGRESSIVES):
            with self.subTest(form=form):
                self.assertEqual(form_of(form), (base, "~ing"))

    def test_what_only_looks_inflected_is_left_alone(self) -> None:
        """Too short for an ending, no vowel before it, no letters."""
        for word in ALONE.split():
            with self.subTest(word=word):
                self.assertEqual(form_of(word), (word, ""))

    def test_a_plural_that_is_another_thing_is_kept(self) -> None:
        """Customs are no custom, Windows no window, Adams is not Adam, and who cuts it is not who cut it."""
        for word in KEPTS.split():
            with self.subTest(word=word):
                self.assertEqual(form_of(word), (word, ""))
        self.assertEqual(set(KEPTS.split()), KEPT)

    def test_a_base_is_its_own_base(self) -> None:
        """So the base of a base is stable."""
        for base, _ in pairs(BASES) + pairs(PASTS) + pairs(PROGRESSIVES):
            with self.subTest(base=base):
                self.assertEqual(form_of(base), (base, ""))


KEPTS = (
    "arms arts ashes brains colors compasses contents customs damages drugs dues forces glasses goods grounds"
    " hives honors jeans looks manners means mechanics minutes news notes numbers odds pages pains papers photos"
    " pictures premises quarters remains savings scales securities shingles shorts spectacles spirits stairs"
    " statistics stocks teams terms thanks times troops weeds windows"
    " beats bets bids broadcasts bursts casts cuts fits forecasts hits hurts knits lets puts quits reads resets rids"
    " sets sheds shuts slits spits splits spreads thrusts upsets weds wets"
    " always besides does has his its less lens perhaps rails series sometimes species texas this towards unless yes"
    " adams andrews brooks daniels edwards james jones matthews michaels peters philips phillips richards roberts"
    " simmons stevens williams"
)
