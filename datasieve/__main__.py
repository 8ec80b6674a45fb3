"""`python -m datasieve` is the `datasieve` command."""

import sys

from datasieve.cli import main

if __name__ == "__main__":
    sys.exit(main())
