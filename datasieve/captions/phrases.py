"""What a caption names: objects, attributes and modifiers, by a small rule-based chunker without a model.

A phrase ends at punctuation, prepositions, determiners, conjunctions and -ing forms. Its last word is an object, the
words before it are attributes ("a red wooden chair": one object, two attributes); a phrase of adjectives alone
("the chair is red") is attributes. A modifier is a prepositional phrase or an -ing form. Details are the different
words that say something: everything but function words, words for the picture ("a photo of") and placeholders.

Written for English. In other languages every word but those listed counts, so captions of one set compare still; verbs
other than -ing forms are taken for objects or attributes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from datasieve.captions.lexicon import FUNCTION_WORDS, PREPOSITIONS, SHOWS, describes, is_participle

_TOKEN = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*|[,.;:!?()\n\[\]|]")

_BREAK, _PREPOSITION, _VERB, _ATTRIBUTE, _WORD, _SHOW = range(6)
_kinds: dict[str, int] = dict.fromkeys(",.;:!?()\n[]|", _BREAK)
_MOST_KINDS = 200_000


@dataclass(frozen=True, slots=True)
class Content:
    """What a caption names.

    Attributes:
        objects: phrases with a thing in them.
        attributes: words that describe one.
        modifiers: prepositional phrases and -ing forms.
        details: different words that say something, in order.
    """

    objects: int
    attributes: int
    modifiers: int
    details: tuple[str, ...]


def _classify(word: str) -> int:
    if word in PREPOSITIONS:
        kind = _PREPOSITION
    elif word in FUNCTION_WORDS:
        kind = _BREAK
    elif word in SHOWS:
        kind = _SHOW
    elif is_participle(word):
        kind = _VERB
    else:
        kind = _ATTRIBUTE if describes(word) else _WORD
    if len(_kinds) >= _MOST_KINDS:
        _kinds.clear()
        _kinds.update(dict.fromkeys(",.;:!?()\n[]|", _BREAK))
    _kinds[word] = kind
    return kind


def content(text: str) -> Content:
    """Return what `text` (see `style.plain`, placeholders taken out) names."""
    objects = attributes = modifiers = 0
    seen: dict[str, None] = {}
    length, last = 0, _BREAK
    known = _kinds
    for token in [*_TOKEN.findall(text.lower()), "."]:
        found = known.get(token)
        kind = _classify(token) if found is None else found
        if kind >= _ATTRIBUTE:
            # "photo" says nothing before "of", and is a thing elsewhere ("holding a photo").
            if kind == _SHOW and not seen:
                length = 0
                continue
            seen[token] = None
            length += 1
            last = kind
            continue
        if length:
            thing = last != _ATTRIBUTE
            objects += thing
            attributes += length - thing
            length = 0
        if kind == _PREPOSITION:
            modifiers += bool(seen)
        elif kind == _VERB:
            modifiers += 1
            seen[token] = None
    return Content(objects, attributes, modifiers, tuple(seen))
