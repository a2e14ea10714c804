"""Random bytes in pieces: each is given out once, and few draws serve many."""

import itertools
import threading
import unittest

from gateway.random_pool import RandomPool

_MANY = 2000
_ID_BYTES = 16


def _numbers(first: int, size: int) -> bytes:
    return b"".join((first + at).to_bytes(_ID_BYTES, "little") for at in range(-(-size // _ID_BYTES)))[:size]


class RandomPoolTest(unittest.TestCase):
    """What callers get of what was drawn."""

    def setUp(self) -> None:
        self.draws = 0

    def draw(self, size: int) -> bytes:
        """Numbers in a row, none twice, _ID_BYTES long each."""
        self.draws += 1
        return _numbers(self.draws << 32, size)

    def test_it_gives_as_many_bytes_as_are_asked_for(self) -> None:
        """Of every size, also one that is more than was drawn at a time."""
        pool = RandomPool(self.draw)
        sizes = [0, 1, 8, 16, 4000, 16, 1 << 16, 3]
        self.assertEqual([len(pool(size)) for size in sizes], sizes)

    def test_nothing_is_given_out_twice(self) -> None:
        """Also across draws, of which there are few."""
        pool = RandomPool(self.draw)
        given = {pool(_ID_BYTES) for _ in range(_MANY)}
        self.assertEqual(len(given), _MANY)
        self.assertLess(self.draws, _MANY // 100)

    def test_threads_share_no_piece(self) -> None:
        """Each of several that draw at once gets its own."""
        draws = itertools.count()
        pool = RandomPool(lambda size: _numbers(next(draws) << 32, size))
        given: list[list[bytes]] = [[] for _ in range(4)]
        barrier = threading.Barrier(len(given))

        def take(mine: list[bytes]) -> None:
            barrier.wait()
            mine += [pool(_ID_BYTES) for _ in range(_MANY)]

        threads = [threading.Thread(target=take, args=(mine,)) for mine in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set().union(*given)), len(given) * _MANY)


if __name__ == "__main__":
    unittest.main()
