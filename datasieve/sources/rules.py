"""Rules on what the listing of files meets. Their findings are the notes of `Ingest`."""

from __future__ import annotations

from datasieve.rules import Rule, Severity

_NONE_MEASURED = "exact: it is either so or not, nothing is estimated; tried on made inputs, no rates to measure"


def _rule(
    id: str, severity: Severity, title: str, remedy: str, why: str, how: str, source: str = "", repair: str = ""
) -> Rule:
    return Rule(
        id=f"layout.{id}",
        column="",
        side="is",
        limit=True,
        severity=severity,
        title=title,
        message="{path}: " + title[0].lower() + title[1:],
        remedy=remedy,
        why=why,
        how=how,
        source=source,
        evidence=_NONE_MEASURED,
        repair=repair,
        scope="note",
    )


_KOHYA = "sd-scripts, dataset documentation and code"
_IMAGEFOLDER = "Hugging Face datasets, imagefolder documentation"
_WEBDATASET = "webdataset 1.0, tariterators"

RULES: tuple[Rule, ...] = (
    _rule(
        "symlink-loop",
        "warning",
        "Link in a circle",
        "Remove the link, or point it at the folder you meant.",
        "A trainer that follows links lists the same pictures again and again, so they weigh more, or it never ends.",
        "A link to a folder that contains it, or to one already listed through a link, is not entered. Compared by "
        "device and file number; file systems without such numbers hide it.",
    ),
    _rule(
        "unreadable-folder",
        "error",
        "Folder cannot be read",
        "Look at the path and the permissions; its pictures are missing from this report.",
        "Pictures in it are not audited, and the trainer either stops there or trains without them.",
        "Opening the folder failed with the reason given.",
    ),
    _rule(
        "same-stem",
        "warning",
        "Two images, one caption",
        "Rename one of the two, with a caption of its own.",
        "Captions and cached latents are found by the name without extension: both pictures get the same caption, and "
        "the cache of one may be used for the other.",
        "Names of one folder are compared without their last extension, without regard to case and Unicode form.",
    ),
    _rule(
        "case-clash",
        "warning",
        "Names differ in case only",
        "Rename one of the two.",
        "On Windows and macOS one file replaces the other as soon as the set is copied or unpacked: a picture is lost.",
        "Names of one folder are compared without regard to case and Unicode form.",
    ),
    _rule(
        "odd-name",
        "info",
        "Name that breaks tools",
        "Rename the file with plain letters, at most 200 bytes long.",
        "Lists of paths break at a line break, archives and caches cut long names, and Windows drops blanks and dots "
        "at the end: the picture or its caption is then silently missing from training.",
        "Control characters, characters that turn the reading direction, bytes that are not UTF-8, more than 200 "
        "bytes, a blank or dot at the end. Emoji and letters of any script are fine.",
    ),
    _rule(
        "unicode-form",
        "info",
        "Two Unicode forms",
        "Write the name the same way in both places; composed (NFC) is the safer one.",
        "An accent can be one character or two. Trainers compare bytes, so they find no caption for the picture.",
        "Names equal in form NFC but not byte by byte; said once for the dataset.",
        source="Unicode Standard Annex 15",
    ),
    _rule(
        "folder-ignored",
        "warning",
        "Image outside the repeats folders",
        "Move it right into a folder called N_name (N at least 1), or leave it out on purpose.",
        "kohya-style trainers read only images that lie directly in folders called N_name: this one is not trained on.",
        "The set has at least one N_name folder, so this layout was assumed. A trainer given the folder by a TOML or "
        "another trainer reads it all the same.",
        source=_KOHYA,
    ),
    _rule(
        "caption-encoding",
        "warning",
        "Caption is not plain UTF-8",
        "Save the text as UTF-8 without a byte-order mark.",
        "kohya stops at bytes that are not UTF-8, others put wrong letters into the prompt, and a byte-order mark "
        "becomes a part of the first word: often the very trigger word.",
        "Byte-order marks and the pattern of zero bytes are certain; Windows-1252 is a guess for all other bytes.",
        repair="captions",
    ),
    _rule(
        "caption-conflict",
        "warning",
        "Captions that disagree",
        "Keep the caption that is right and delete the other.",
        "Which one is learned depends on the trainer: half of your edits may be in the file it does not read.",
        "Texts are compared after line ends and outer blanks are taken away. Used here: metadata before sidecar, .txt "
        "before .caption, the first row before later ones.",
    ),
    _rule(
        "caption-mixed",
        "warning",
        "Two kinds of caption files",
        "Give all captions of the folder one extension; .txt is understood most widely.",
        "A trainer reads one extension per folder (kohya .caption unless told otherwise); "
        "images with the other have no caption.",
        "Counts the .txt and .caption files that belong to images.",
        source=_KOHYA,
        repair="captions",
    ),
    _rule(
        "caption-orphan",
        "warning",
        "Caption without image",
        "Bring back the picture, rename the caption to fit, or delete it.",
        "A picture was lost or renamed, and it or its caption is missing from training.",
        "A caption file whose name fits no image in its folder. Readme and licence texts do not count.",
    ),
    _rule(
        "caption-name",
        "warning",
        "Caption under another name",
        "Rename the caption to the image's name with the extension the trainer reads.",
        "Trainers look for name.txt; a file called name.jpg.txt or spelt in another case is not found, and the picture "
        "is trained with an empty prompt.",
        "A caption left over whose name fits an image but for an extra extension, case, or outer blanks.",
        repair="captions",
    ),
    _rule(
        "caption-lines",
        "warning",
        "Caption of several lines",
        "Write the caption on one line, or keep the lines if your trainer picks one at random.",
        "kohya reads only the first line (a blank one is an empty prompt), OneTrainer takes a random line, A1111 the "
        "whole text: the same file trains three different prompts.",
        "More than one line with text, or a blank line first. Lines are kept here as they are.",
        source=_KOHYA,
        repair="captions",
    ),
    _rule(
        "caption-huge",
        "warning",
        "Caption as long as a book",
        "Cut the caption to what the text encoder reads; 75 tokens are about 300 characters.",
        "Everything past the encoder's limit is thrown away, and a text of this size is usually not a caption at all.",
        "More than 10,000 characters; nothing is read past 64 MiB.",
    ),
    _rule(
        "caption-unreadable",
        "warning",
        "Caption cannot be read",
        "Look at the file's permissions or the link.",
        "The picture is trained with an empty prompt, or the run stops.",
        "Opening the file failed with the reason given.",
    ),
    _rule(
        "metadata-malformed",
        "warning",
        "Line that cannot be read",
        "Correct the line; in JSON lines one object a line, in CSV quotes around text with commas.",
        "The loader stops at it, or drops the line, and the image goes without a caption.",
        "The line is no JSON object, has more cells than the header, or names no file. The other lines are used.",
        source=_IMAGEFOLDER,
    ),
    _rule(
        "metadata-mismatch",
        "warning",
        "Row without its image",
        "Correct the path in the row, or delete the row.",
        "The loader stops, or the picture and caption are missing from training.",
        "Paths are compared in Unicode form NFC, case counts. When all rows fail for one reason, that reason is given.",
        source=_IMAGEFOLDER,
    ),
    _rule(
        "metadata-orphan",
        "warning",
        "Image without its row",
        "Describe it in a row of its own, or take the image out.",
        "Loaders that go by metadata refuse the set or leave the picture out.",
        "The nearest metadata file at or above the image has no row with its path.",
        source=_IMAGEFOLDER,
    ),
    _rule(
        "metadata-unused",
        "warning",
        "Metadata nobody reads",
        "Rename it to metadata.jsonl with a column file_name, or audit that file itself.",
        "The captions you wrote are in a file that no loader looks for: every picture is trained without them.",
        "A table whose cells name images beside it, under another name or without a column file_name; a dataset TOML "
        "in a folder audited by itself. Recognised from its first 50 rows.",
        source=_IMAGEFOLDER,
    ),
    _rule(
        "archive",
        "info",
        "Archive not opened",
        "Unpack it if its pictures belong to the set.",
        "Pictures in archives beside loose images are neither audited nor trained.",
        "By extension; .tar files are opened only where there is no loose image.",
    ),
    _rule(
        "shard-truncated",
        "error",
        "Shard ends early",
        "Download or make the shard again; compare its size with the original's.",
        "The samples after the cut are lost, and many readers stop the run at that place.",
        "The tar file is empty, ends inside a member or header, or lacks the blocks of zeros at its end. Whole samples "
        "before the cut are used.",
        source="POSIX.1-2001, pax interchange format",
    ),
    _rule(
        "shard-gap",
        "warning",
        "Missing shard numbers",
        "Find the missing shards, or rename the others so that the numbers run through.",
        "A pattern like {000..099} stops at the missing shard, and its samples are not trained.",
        "Numbers absent between the first and last of a series. Shards missing at the end cannot be seen.",
        source=_WEBDATASET,
    ),
    _rule(
        "shard-key",
        "warning",
        "Name that splits a sample",
        "Write the shard again with names without dots, the files of a sample side by side.",
        "WebDataset ends the key at the first dot and groups neighbours: the image becomes a field nobody asks for, or "
        "loses its caption, and drops out of training in silence.",
        "A key with no field of one extension, or one that comes back later in the shard.",
        source=_WEBDATASET,
    ),
)
"""Every rule a note can name."""
