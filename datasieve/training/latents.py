"""The autoencoder's view of the pictures, computed once and kept by content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import xxhash

from datasieve.errors import ImageError, OutputError
from datasieve.storage import atomic_path
from datasieve.training.examples import Example, mask, pixels

if TYPE_CHECKING:
    from datasieve.progress import Progress
    from datasieve.training.base import Base
    from datasieve.training.settings import Mask


class Latents:
    """Latents of pictures: distributions to draw from, the loss mask, and what the autoencoder loses.

    Args:
        base: the autoencoder encodes in float32: in half precision pictures of extreme contrast overflow.
        folder: where they are kept between runs; None keeps them in memory alone.
        masks: where loss masks come from.
        unmasked_weight: what black in a mask counts, 0..1.
    """

    def __init__(self, base: Base, folder: Path | None, *, masks: Mask = "off", unmasked_weight: float = 0.1) -> None:
        self.base, self.folder, self.masks, self.unmasked_weight = base, folder, masks, unmasked_weight
        self._kept: dict[tuple[str, bool], dict[str, torch.Tensor]] = {}

    def prepare(self, examples: Sequence[Example], *, flip: bool, progress: Progress) -> None:
        """Encode every picture that is not kept yet. Raises ImageError naming a file whose latents are not finite."""
        progress.stage("encoding pictures", len(examples))
        for example in examples:
            for mirrored in (False, True) if flip else (False,):
                self._entry(example, mirrored)
            progress.advance()

    def draw(self, example: Example, seed: int, *, mirrored: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return scaled latents (C, h, w) drawn from the picture's distribution, and its mask (h, w) or None."""
        entry = self._entry(example, mirrored)
        noise = torch.randn(entry["mean"].shape, generator=torch.Generator().manual_seed(seed ^ 0x3C3C))
        config = self.base.vae.config
        shift = getattr(config, "shift_factor", None) or 0.0
        latents = (entry["mean"] + entry["std"] * noise - shift) * config.scaling_factor
        return latents, entry.get("mask")

    def round_trip(self, example: Example) -> float:
        """Return the mean absolute error of encoding and decoding a picture, on [-1, 1]: what can never be learned."""
        return float(self._entry(example, False)["round_trip"])

    def _entry(self, example: Example, mirrored: bool) -> dict[str, torch.Tensor]:
        key = (f"{example.path}@{example.size}@{example.is_prior}", mirrored)
        if key not in self._kept:
            self._kept[key] = self._load_or_encode(example, mirrored)
        return self._kept[key]

    def _load_or_encode(self, example: Example, mirrored: bool) -> dict[str, torch.Tensor]:
        file = None
        if self.folder is not None:
            content = xxhash.xxh128_hexdigest(example.location.read())
            name = f"{content}-{example.size[0]}x{example.size[1]}-{self.base.identity}-{self.masks}-{int(mirrored)}"
            file = self.folder / f"{name}.pt"
            # A mask file can change without its picture: such entries are not kept on disk.
            if self.masks == "file":
                file = None
            elif file.is_file():
                try:
                    stored: dict[str, torch.Tensor] = torch.load(file, weights_only=True)
                    return stored
                except Exception:
                    file.unlink()  # a damaged entry is made again
        entry = self._encode(example, mirrored)
        if file is not None:
            try:
                with atomic_path(file) as path:
                    torch.save(entry, path)
            except RuntimeError as error:
                raise OutputError(f"cannot write {file}: {error}", remedy="Free some space.") from error
        return entry

    @torch.no_grad()
    def _encode(self, example: Example, mirrored: bool) -> dict[str, torch.Tensor]:
        picture, weights = pixels(example), mask(example, self.masks)
        if mirrored:
            picture = picture.flip(-1)
            weights = None if weights is None else weights.flip(-1)
        with torch.autocast(self.base.device.type, enabled=False):
            x = picture[None].float().to(self.base.device)
            posterior = self.base.vae.encode(x).latent_dist
            made = self.base.vae.decode(posterior.mode()).sample
        entry = {
            "mean": posterior.mean[0].cpu(),
            "std": posterior.std[0].cpu(),
            "round_trip": (made.clamp(-1, 1) - x).abs().mean().cpu(),
        }
        if not all(bool(value.isfinite().all()) for value in entry.values()):
            raise ImageError(
                f"the autoencoder of {self.base.path} turns {example.path} into numbers that are not finite",
                remedy="Leave this picture out, or use another autoencoder.",
            )
        if weights is not None:
            down = torch.nn.functional.interpolate(weights[None, None], entry["mean"].shape[-2:], mode="area")[0, 0]
            entry["mask"] = down.clamp(min=self.unmasked_weight)
        return entry
