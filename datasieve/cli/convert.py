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
              help="B's form.  [default: by its name: .pt is a1111, .safetensors datasieve, .bin and learned_embeds.* "
                   "diffusers]")  # fmt: skip
@click.option("--name", help="Which embedding, if A holds several; what to call it in B, if A holds one.")
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
    from datasieve.errors import OutputError
    from datasieve.reporting.text import safe, write_out
    from datasieve.training.formats.files import kind_of

    if target.exists() and not force:
        raise OutputError(f"{target} is there already", remedy="Choose another name, or replace it with --force.")
    if kind_of(source, allow_parameter_dict=allow_parameter_dict) == "hypernetwork":
        lines = _hypernetwork(source, target, form, name)
    else:
        lines = _embedding(source, target, form, name, allow_parameter_dict)
    write_out("\n".join(safe(line) for line in lines) + "\n", machine=False)
    return 0


def _hypernetwork(source: Path, target: Path, form: str | None, name: str | None) -> list[str]:
    from dataclasses import replace

    from datasieve.errors import ModelError
    from datasieve.training.formats.hypernetworks import read_hypernetwork, readers, write_hypernetwork

    if form in ("diffusers", "onetrainer"):
        raise ModelError(f"{form} has no form for hypernetworks", remedy="Write a1111 (.pt) or datasieve.")
    found = read_hypernetwork(source)
    network = replace(found, name=name) if name else found
    chosen = form or ("a1111" if target.suffix.lower() == ".pt" else "datasieve")
    lost = write_hypernetwork(target, network, chosen)
    widths = ", ".join(map(str, sorted(network.layers)))
    return [
        f"Read     hypernetwork {found.name!r}, widths {widths}, step {found.step or 'unknown'}",
        *_told(target, chosen, readers(network, chosen), lost),
    ]


def _embedding(source: Path, target: Path, form: str | None, name: str | None, allow: bool) -> list[str]:
    from dataclasses import replace

    from datasieve.errors import ModelError
    from datasieve.training.formats.embeddings import checksum, read_embeddings, readers, write_embedding

    found = read_embeddings(source, allow_parameter_dict=allow)
    if len(found) > 1:
        names = ", ".join(e.name for e in found)
        found = [e for e in found if e.name == name]
        if not found:
            raise ModelError(f"{source} holds several embeddings: {names}", remedy="Choose one with --name.")
    embedding = replace(found[0], name=name) if name else found[0]
    default = {".pt": "a1111", ".bin": "diffusers"}.get(target.suffix.lower(), "datasieve")
    chosen = form or ("diffusers" if target.stem.startswith("learned_embeds") else default)
    lost = write_embedding(target, embedding, chosen)
    shapes = ", ".join(f"{k} {v.shape[0]} x {v.shape[1]}" for k, v in found[0].vectors.items())
    step = "unknown" if embedding.step is None else embedding.step
    hashed = f", A1111's hash {checksum(next(iter(embedding.vectors.values())))}" if len(embedding.vectors) == 1 else ""
    lines = [
        f"Read     embedding {found[0].name!r}, {shapes}, step {step}{hashed}",
        *_told(target, chosen, readers(embedding, chosen), lost),
    ]
    if chosen in ("a1111", "diffusers") and not (embedding.name.startswith("<") and embedding.name.endswith(">")):
        lines.append(
            f"Note     diffusers will know it as {embedding.name!r}: it refuses a word it has and finds others "
            "in longer words; --name '<...>' avoids both"
        )
    return lines


def _told(target: Path, form: str, readers: str, lost: list[str]) -> list[str]:
    lines = [f"Written  {target}, the form {form}, which is read by {readers}"]
    return [*lines, f"Left out {', '.join(lost)}"] if lost else lines
