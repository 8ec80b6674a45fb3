"""The few English words that the rule-based chunker knows by themselves. Written for datasieve; no outside list."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """Return the words of `text`."""
    return frozenset(text.split())


PREPOSITIONS = word_set(
    "about above across after against along amid among around as at atop before behind below beneath beside besides "
    "between beyond by down during for from in inside into like near next of off on onto out outside over past per "
    "through throughout to toward towards under underneath until up upon via with within without"
)

DETERMINERS = word_set(
    "a an another any both each either every few her his its many more most much my neither no one other our several "
    "some such that the their these this those your"
)

_OTHERS = (
    "and or but nor so yet if than then because while when where which who whose whom what how it he she they them him "
    "we us you i me itself himself herself themselves there here not also too very just only even still quite rather "
    "is are was were be been being am has have had having do does did done doing could may might must shall should "
    "will would isn't aren't wasn't don't doesn't cannot can't it's there's that's"
)

FUNCTION_WORDS = PREPOSITIONS | DETERMINERS | word_set(_OTHERS)
"""Words that say nothing about a picture by themselves."""

SHOWS = word_set("photo photograph picture image pic shot snapshot depiction rendition rendering")
"""Words for the picture itself: "a photo of" says nothing that the model does not see."""

COLOURS = word_set(
    "red orange yellow green blue purple violet pink brown black white grey gray silver gold golden beige cream tan "
    "turquoise teal cyan magenta maroon navy crimson scarlet olive lime indigo lavender ginger blonde blond brunette "
    "auburn bronze copper khaki amber ivory peach rust"
)

SYNONYMS = {"gray": "grey", "blond": "blonde", "golden": "gold", "violet": "purple", "scarlet": "red", "crimson": "red"}
"""Spellings and near names of colours that do not contradict each other."""

NOT_PARTICIPLES = word_set(
    "bring building ceiling clothing drawing dressing earring during evening everything king morning nothing painting "
    "ring sibling sing something spring sting string swing thing wedding wing anything offspring lightning railing "
    "siding icing stocking frosting awning bedding seating flooring"
)

ADJECTIVES = word_set(
    "big small large tiny huge little tall short long wide narrow thick thin round square flat old new young ancient "
    "modern vintage bright dark light pale deep vivid soft hard smooth rough shiny matte dull glossy wet dry clean "
    "dirty wooden metal metallic plastic glass stone leather cotton woollen fluffy furry hairy bald striped spotted "
    "plain colourful colorful open closed full half empty alone single double several two three four five many happy "
    "sad angry calm serious sunny cloudy rainy snowy foggy urban rural natural"
)
"""Words that describe even where they stand last ("the ball is red")."""
_ADJECTIVE_ENDS = ("ful", "ous", "less", "ish", "ive", "able", "ible", "ic")


def describes(word: str) -> bool:
    """Tell whether `word` (lower case) is an attribute wherever it stands."""
    return word in COLOURS or word in ADJECTIVES or (len(word) > 5 and word.endswith(_ADJECTIVE_ENDS))


def is_participle(word: str) -> bool:
    """Tell whether `word` (lower case) is an -ing form of a verb, as in "sitting"."""
    return len(word) > 4 and word.endswith("ing") and word not in NOT_PARTICIPLES
