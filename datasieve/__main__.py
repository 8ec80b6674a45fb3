"""`python -m datasieve` is the `datasieve` command."""

from datasieve.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
