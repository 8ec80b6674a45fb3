"""`datasieve explain NAME`: what a rule, a column or an analyzer is."""

from __future__ import annotations

import click


@click.command("explain", short_help="Say what a rule, a column or an analyzer is.")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Explain a rule, a column or an analyzer; without NAME, list every rule.

    \b
    Examples:
      datasieve explain
      datasieve explain colour.cast
      datasieve explain colour
    """
    from datasieve.policy import all_rules
    from datasieve.reporting import explanation
    from datasieve.reporting.screen import print_lines, stdout_console

    console = stdout_console()
    rules = all_rules()
    if name is None:
        print_lines(console, explanation.all_rules_lines(rules, console))
    else:
        print_lines(console, explanation.explain(name, rules, console))
