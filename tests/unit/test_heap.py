"""Free memory goes back to the system, and is looked for less often."""

import ctypes
import gc
import unittest
from pathlib import Path
from unittest import mock

from gateway import heap

PIECE, PIECES, KEPT_OF = 1024, 65_536, 64


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


class FreezeTest(unittest.TestCase):
    """What a start has made."""

    def setUp(self) -> None:
        self.addCleanup(gc.unfreeze)
        self.addCleanup(gc.set_threshold, *gc.get_threshold())

    def test_the_collector_leaves_what_is_there_alone(self) -> None:
        """And looks at what comes, when there is more of it."""
        before: list[object] = []
        heap.freeze()
        after: list[object] = []
        looked_at = {id(one) for one in gc.get_objects()}
        self.assertNotIn(id(before), looked_at)
        self.assertIn(id(after), looked_at)
        self.assertEqual(gc.get_threshold(), heap.COLLECT_EVERY)
        self.assertTrue(gc.isenabled())


class TrimTest(unittest.TestCase):
    """What nobody uses, however it is scattered."""

    @unittest.skipUnless(hasattr(ctypes.CDLL(None), "malloc_trim"), "this C library keeps no free memory")
    def test_scattered_free_memory_is_given_back(self) -> None:
        """Small pieces that are kept in between hold the heap open: its end alone would be nothing."""
        pieces = [bytearray(PIECE) for _ in range(PIECES)]
        full = resident_bytes()
        kept = pieces[::KEPT_OF]
        del pieces
        heap.trim()
        self.assertLess(resident_bytes(), full - PIECE * PIECES // 2)
        self.assertEqual(len(kept), PIECES // KEPT_OF)

    def test_a_c_library_without_the_call_is_left_alone(self) -> None:
        """Nothing is done, and nothing is raised."""
        heap._malloc_trim.cache_clear()
        self.addCleanup(heap._malloc_trim.cache_clear)
        with mock.patch("ctypes.CDLL", return_value=object()):
            heap.trim()
