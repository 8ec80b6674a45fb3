"""What is asked of pictures with a text tower: attributes whose values exclude each other. Written for datasieve.

A concept whose pictures differ in what belongs to the subject contradicts itself; one whose pictures differ in the
scene is varied, which is what training wants.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Of = Literal["subject", "scene"]


class Option(NamedTuple):
    """One value: its name for people, and the texts that are averaged to stand for it."""

    name: str
    texts: tuple[str, ...]


class Attribute(NamedTuple):
    """Values of which a picture shows one.

    Attributes:
        name: what is asked.
        options: two or more values.
        of: whether it belongs to the subject or to the scene.
        kind: asked only of concepts that show this option of `KIND`; "" for all.
    """

    name: str
    options: tuple[Option, ...]
    of: Of = "subject"
    kind: str = ""


_TEMPLATES = ("{}", "a photo of {}")
_PERSONS = ("a person", "a man", "a woman", "a face")


def _options(phrases: str, subjects: tuple[str, ...] = ("",)) -> tuple[Option, ...]:
    """Return options of phrases separated by "|"; "name = text" where the text differs from the name."""
    found = []
    for phrase in phrases.split("|"):
        name, _, text = (part.strip() for part in phrase.partition("="))
        inner = [f"{subject} {text or name}".strip() for subject in subjects]
        found.append(Option(name, tuple(t.format(one) for one in inner for t in _TEMPLATES)))
    return tuple(found)


def of_subject(name: str, noun: str, values: tuple[str, ...]) -> Attribute:
    """Return the attribute of values that stand before a noun: ("hair colour", "hair", ("blonde", "black"))."""
    return Attribute(name, tuple(_options(f"{value} = a {value} {noun}")[0] for value in values))


KIND = Attribute(
    "kind",
    _options(
        "person = a person | animal = an animal | object = an object | building = a building | landscape = a landscape "
        "| plant = a plant | food = food | vehicle = a vehicle"
    ),
)

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white", "grey")
_COLOURED = " | ".join(f"{colour} = something {colour}" for colour in COLOURS)

VOCABULARY: tuple[Attribute, ...] = (
    Attribute("glasses", _options("with glasses | without glasses", _PERSONS), kind="person"),
    Attribute(
        "hair colour",
        _options(
            "blonde = with blonde hair | black hair = with black hair | brown hair = with brown hair | red hair = with "
            "red hair | grey hair = with grey hair",
            _PERSONS,
        ),
        kind="person",
    ),
    Attribute(
        "hair length",
        _options("long hair = with long hair | short hair = with short hair | bald = with a bald head", _PERSONS),
        kind="person",
    ),
    Attribute("beard", _options("with a beard | without a beard", ("a man", "a person")), kind="person"),
    Attribute("hat", _options("with a hat | without a hat", _PERSONS), kind="person"),
    Attribute(
        "age",
        _options("baby = a baby | child = a child | adult = an adult | old person = an old person"),
        kind="person",
    ),
    Attribute("sex", _options("man = a man | woman = a woman"), kind="person"),
    Attribute(
        "species",
        _options(
            "dog = a dog | cat = a cat | horse = a horse | bird = a bird | fish = a fish | rabbit = a rabbit | "
            "bear = a bear | mouse = a mouse | monkey = a monkey | cow = a cow | sheep = a sheep | pig = a pig | "
            "lion = a lion | fox = a fox | frog = a frog | insect = an insect"
        ),
        kind="animal",
    ),
    Attribute(
        "fur",
        _options("spotted = a spotted animal | striped = a striped animal | plain = an animal of one colour"),
        kind="animal",
    ),
    Attribute(
        "material",
        _options(
            "wooden = made of wood | metal = made of metal | glass = made of glass | plastic = made of plastic | "
            "fabric = made of fabric | ceramic = made of ceramic | stone = made of stone | paper = made of paper",
            ("an object", "a thing"),
        ),
        kind="object",
    ),
    Attribute("colour of the object", _options(_COLOURED), kind="object"),
    Attribute("colour of the vehicle", _options(_COLOURED), kind="vehicle"),
    Attribute(
        "medium",
        (
            Option("photo", ("a photo", "a photograph", "a snapshot")),
            Option("drawing", ("a drawing", "a sketch", "a line drawing")),
            Option("painting", ("a painting", "an oil painting", "a watercolour")),
            Option("cartoon", ("a cartoon", "an anime picture", "a comic")),
            Option("3D render", ("a 3D render", "computer graphics")),
        ),
    ),
    Attribute("colouring", _options("in colour = a colour picture | black and white = a black and white picture")),
    Attribute("place", _options("indoors = indoors, in a room | outdoors = outdoors, under the sky"), "scene"),
    Attribute("time", _options("day = by day | night = at night"), "scene"),
    Attribute("weather", _options("sunny = in the sun | snowy = in the snow | rainy = in the rain"), "scene"),
)
