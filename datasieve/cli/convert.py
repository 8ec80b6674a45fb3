"""`datasieve convert`: embeddings and hypernetworks from one tool's form to another's."""

from __future__ import annotations

from pathlib import Path

import click

from datasieve.cli.choices import PATH

FORMS = ("datasieve", "a1111", "diffusers", "onetrainer")


@click.command("convert", short_help="Rewrite an embedding or hypernetwork for another tool.")
@click.argument("source", type=PATH, metavar="A")
@click.argument("target", type=PATH, metavar="B")
@click.option("--to", "form", type=click.Choice(FORMS),
              help="B's form.  [default: by its name; .pt is a1111, .safetensors datasieve]")  # fmt: skip
@click.option("--name", help="Call it this instead of what A says.")
@click.option("--allow-parameter-dict", is_flag=True,
              help="Open original Textual Inversion files, whose vectors lie in a torch object.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace B if it is there.")
def command(
    source: Path, target: Path, form: str | None, name: str | None, allow_parameter_dict: bool, force: bool
) -> int:
    """Read the embedding or hypernetwork A, whatever wrote it, and write B.

    \b
    Examples:
      datasieve convert old-cat.pt my-cat.safetensors
      datasieve convert my-cat.safetensors learned_embeds.safetensors --name "<my-cat>"
      datasieve convert style.pt style.safetensors
    """
    from dataclasses import replace

    from datasieve.errors import ModelError, OutputError
    from datasieve.reporting.text import safe, write_out
    from datasieve.training.formats.embeddings import read_embeddings, write_embedding
    from datasieve.training.formats.files import kind_of
    from datasieve.training.formats.hypernetworks import read_hypernetwork, write_hypernetwork

    if target.exists() and not force:
        raise OutputError(f"{target} is there already", remedy="Choose another name, or replace it with --force.")
    lines = []
    if kind_of(source, allow_parameter_dict=allow_parameter_dict) == "hypernetwork":
        if form in ("diffusers", "onetrainer"):
            raise ModelError(f"{form} has no form for hypernetworks", remedy="Write a1111 (.pt) or datasieve.")
        network = read_hypernetwork(source)
        network = replace(network, name=name) if name else network
        lost = write_hypernetwork(target, network, form)
        widths = ", ".join(map(str, sorted(network.layers)))
        lines.append(f"Read     hypernetwork {network.name!r}, widths {widths}, step {network.step}")
    else:
        found = read_embeddings(source, allow_parameter_dict=allow_parameter_dict)
        if len(found) > 1:
            wanted = [e for e in found if e.name == name]
            if not wanted:
                names = ", ".join(e.name for e in found)
                raise ModelError(f"{source} holds several embeddings: {names}", remedy="Choose one with --name.")
            found = wanted
        embedding = replace(found[0], name=name) if name else found[0]
        default = {".pt": "a1111", ".bin": "diffusers"}.get(target.suffix.lower(), "datasieve")
        chosen = form or ("diffusers" if target.stem.startswith("learned_embeds") else default)
        lost = write_embedding(target, embedding, chosen)
        shapes = ", ".join(f"{k} {v.shape[0]} x {v.shape[1]}" for k, v in embedding.vectors.items())
        lines.append(f"Read     embedding {embedding.name!r}, {shapes}, step {embedding.step or 'unknown'}")
    lines.append(f"Written  {target}" + (f" ({form})" if form else ""))
    if lost:
        lines.append(f"Left out {', '.join(lost)}: the form does not hold it")
    write_out("\n".join(safe(line) for line in lines) + "\n", machine=False)
    return 0
