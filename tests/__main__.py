"""`python -W error -m tests`: every test, a few modules at a time."""

import sys

from tests.side_by_side import main

if __name__ == "__main__":
    sys.exit(main())
