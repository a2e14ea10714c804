"""Random bytes in pieces: each is given out once, and few draws serve many."""

import itertools
import threading
import unittest

from gateway.random_pool import PIECE_BYTES, RandomPool

_MANY = 2000


class RandomPoolTest(unittest.TestCase):
    """What callers get of what was drawn."""

    def setUp(self) -> None:
        self.draws = 0

    def draw(self, size: int) -> bytes:
        """Numbers in a row, none twice, as long as a piece each."""
        self.draws += 1
        first = self.draws << 32
        return b"".join((first + at).to_bytes(PIECE_BYTES, "little") for at in range(size // PIECE_BYTES))

    def test_it_gives_as_many_bytes_as_are_asked_for(self) -> None:
        """Of every size up to a whole piece; more is refused."""
        pool = RandomPool(self.draw)
        self.assertEqual([len(pool(size)) for size in range(PIECE_BYTES + 1)], list(range(PIECE_BYTES + 1)))
        with self.assertRaises(ValueError):
            pool(PIECE_BYTES + 1)

    def test_nothing_is_given_out_twice(self) -> None:
        """Also across draws, of which there are few."""
        pool = RandomPool(self.draw)
        given = {pool(PIECE_BYTES) for _ in range(_MANY)}
        self.assertEqual(len(given), _MANY)
        self.assertLess(self.draws, _MANY // 100)

    def test_threads_share_no_piece(self) -> None:
        """Each of several that draw at once gets its own."""
        drawn = itertools.count()
        pool = RandomPool(lambda size: b"".join(next(drawn).to_bytes(PIECE_BYTES, "big") for _ in range(size // 16)))
        given: list[list[bytes]] = [[] for _ in range(4)]
        barrier = threading.Barrier(len(given))

        def take(mine: list[bytes]) -> None:
            barrier.wait()
            mine += [pool(PIECE_BYTES) for _ in range(_MANY)]

        threads = [threading.Thread(target=take, args=(mine,)) for mine in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set().union(*given)), len(given) * _MANY)


if __name__ == "__main__":
    unittest.main()
