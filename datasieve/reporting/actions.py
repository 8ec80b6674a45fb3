"""What to do about a finding, as a heading: remedies are imperative sentences, so their first verb tells.

A linter lists by file or by rule; somebody mending a set works by kind of job, so findings are shown in these groups.
"""

from __future__ import annotations

import re

REPLACE = "Throw out or replace"
CONVERT = "Convert or save again"
EDIT = "Crop or edit"
CAPTION = "Rewrite captions"
MOVE = "Rename or move"
SETTINGS = "Change a setting"
ADD = "Add images"
LOOK = "Look at"

ACTIONS = (REPLACE, CONVERT, EDIT, CAPTION, MOVE, ADD, SETTINGS, LOOK)
"""Every heading, from what stops a training to what may be fine as it is."""

_VERBS = {
    REPLACE: "replace remove delete drop leave throw exclude discard get find download fetch redownload restore keep "
    "swap retake reshoot scan rescan",
    CONVERT: "convert save re-save resave export re-export flatten reduce turn rotate re-encode decode composite apply "
    "strip assign embed rewrite bake write upright",
    EDIT: "mend crop cut trim edit correct white-balance adjust brighten darken lighten sharpen denoise upscale "
    "downscale resize retouch paint mask blur undo redo shrink enlarge scale",
    CAPTION: "caption recaption describe shorten",
    MOVE: "rename move put name call rezip repack split merge unpack separate",
    ADD: "add collect take photograph supply give",
    SETTINGS: "set use choose lower raise train change increase decrease enable disable pass switch start pick run "
    "install",
    LOOK: "look check see review compare decide make read open view",
}
_HEADINGS = {verb: heading for heading, verbs in _VERBS.items() for verb in verbs.split()}


def action(remedy: str) -> str:
    """Return the heading of ACTIONS for `remedy`; remedies about captions are grouped as such, unknown verbs LOOK."""
    words = re.findall(r"[a-z][a-z\-]*", remedy.casefold())
    if not words:
        return LOOK
    heading = _HEADINGS.get(words[0], LOOK)
    if heading in (EDIT, CONVERT, REPLACE, ADD) and any(word.startswith("caption") for word in words[1:4]):
        return CAPTION
    return heading
