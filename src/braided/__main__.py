"""`python -m braided`, for systems where the `braided` script is not on the path."""

import sys

from braided.cli import main

if __name__ == "__main__":
    sys.exit(main())
