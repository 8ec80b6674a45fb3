"""`python -m datasieve.cli`, for where the console script is not on the path."""

import sys

from datasieve.cli import main

sys.exit(main())
