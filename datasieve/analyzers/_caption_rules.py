"""The words of the rules on captions; their columns are measured in captions.py."""

from __future__ import annotations

from datasieve.captions.granularity import FAR
from datasieve.rules import Rule, Scope, Severity, Side

_SETS = (
    "169 sets with planted captions; counted on 12 subjects (754 images, 76 sets); the other 13 served for tuning, but "
    "the measure was shaped with all in view"
)
_EXACT = "exact: it is either so or not, nothing is estimated; tried on made captions, no rates to measure"


def _rule(
    name: str,
    severity: Severity,
    title: str,
    message: str,
    remedy: str,
    why: str,
    how: str,
    evidence: str,
    *,
    column: str = "",
    side: Side = "above",
    limit: float | bool = 0,
    source: str = "",
    repair: str = "",
    scope: Scope = "image",
) -> Rule:
    return Rule(
        id=f"captions.{name}",
        column=f"captions.{column or name}",
        side=side,
        limit=limit,
        severity=severity,
        title=title,
        message=message,
        remedy=remedy,
        why=why,
        how=how,
        source=source,
        evidence=evidence,
        repair=repair,
        scope=scope,
    )


RULES: tuple[Rule, ...] = (
    _rule(
        "missing",
        "warning",
        "Caption missing",
        "There is no caption, while other images of the set have one.",
        "Caption the image like the others of its concept.",
        "Without a caption trainers use the folder's name or an empty prompt: everything in the picture is learned as "
        "part of the concept, or of no word at all.",
        "No caption was found for the image by any of the ways a trainer looks for one. Silent when no image of the "
        "set has a caption, since templates are then used.",
        f"{_SETS}: 15 of 15 found, 0 false alarms. " + _EXACT,
        side="is",
        limit=True,
    ),
    _rule(
        "none",
        "info",
        "No captions",
        "There is no caption, and none beside any other image of the set.",
        "Caption the images, or see to it that the trainer's template or folder name says what they show.",
        "Everything that no word accounts for is learned as part of the concept; with a fixed prompt that is the "
        "background, the light and the pose as well.",
        "No caption was found for any image, by any of the ways a trainer looks for one. File names are not captions.",
        _EXACT,
        side="is",
        limit=True,
    ),
    _rule(
        "empty",
        "warning",
        "Caption empty",
        "The caption holds no word.",
        "Write a caption like those of its concept, or remove the empty file to have the folder's name used.",
        "An empty caption trains the empty prompt, which every other prompt is measured against when images are drawn.",
        "The caption has no letter and no digit.",
        _EXACT,
        side="is",
        limit=True,
    ),
    _rule(
        "too-long",
        "warning",
        "Caption cut off",
        "It makes {captions.tokens} tokens, {value} more than are read; nothing is learned from: "
        '"{captions.words-lost:.80}".',
        "Shorten the caption to 75 tokens, what matters first.",
        "CLIP's text encoder reads 75 tokens; the trainer cuts the rest off without a word, so what the words at the "
        "end name is learned as part of the concept.",
        "Counted with CLIP's vocabulary the way the trainer's tokenizer does (--trainer). kohya's --max_token_length "
        "and T5 encoders of newer bases read more; that cannot be seen from the captions.",
        "token counts equal transformers 5.24 and open_clip 3.3 on 9,000 of 9,000 varied texts. "
        f"{_SETS}: 15 of 15 found, 0 false alarms.",
        column="tokens-lost",
        source="Radford et al. 2021, arXiv:2103.00020; the trainers' own code",
        repair="split-caption",
    ),
    _rule(
        "granularity-outlier",
        "warning",
        "Says far more or less",
        "It names {captions.details} details in {captions.words} words ({captions.style}), {value:.1f} doublings away "
        "from its concept's other captions, which take about {captions.usual-words}.",
        "Rewrite the caption at the level of detail and in the style of the concept's others.",
        "Where one caption says only 'a dog' and the next describes coat, pose and place, the same token must stand "
        "for everything in one picture and for the rest in the other; the new token then takes up backgrounds.",
        "Size of a caption: mean of log2(1 + details) and log2(1 + words); details are different words that say "
        "something. Distance from the concept's median, 1.5 more for tags among sentences. Written for English; in "
        "other languages function words count as details.",
        f"{_SETS}: generic 16 of 16, 30 words 7 of 8, over 75 tokens 15 of 15, tags 6 of 6; 0 false alarms on 689 "
        "images; AUROC 1.00. The measure was shaped with both halves in view. 6 to 100 captions of all subjects mixed, "
        "as a style has them: at most 0.7 % false alarms; a fifth 'a dog': all found, a fifth of 30 words: 31 to 77 %.",
        limit=FAR,
        source="Gal et al. 2022, arXiv:2208.01618 (captions set what a token must account for); the measure is ours",
        repair="level-caption",
    ),
    _rule(
        "granularity-break",
        "warning",
        "Two levels of detail",
        "The captions of this concept differ by {value:.1f} doublings in how much they say: some name a thing, others "
        "describe a scene.",
        "Rewrite the captions of this concept at one level of detail, all short or all describing.",
        "Token-level methods learn what the words leave over; captions of two levels leave over two different things.",
        "Root mean square of the distances from the median, of captions with words. From 20 captions on it counts only "
        "when Hartigan's dip test finds more than one group (p < 0.05) or a tenth of them stand out; fewer cannot be "
        "tested, and the spread alone decides.",
        f"{_SETS}: 20 of 20 broken sets, 0 of 56 whole ones, one all of 2 words and one all of 30; AUROC 1.00. "
        "Captions drawn from all subjects: 0 of 200 whole sets at 6, 12, 20, 24 and 100 captions; with a fifth or half "
        "'a dog' 98 to 100 %.",
        limit=0.6,
        source="Hartigan & Hartigan 1985, doi:10.1214/aos/1176346577, for the dip test",
        repair="level-caption",
        scope="concept",
    ),
    _rule(
        "stutter",
        "warning",
        "Caption repeats itself",
        "{value:.0%} of its word pairs stood before in the same caption: it looks like a captioner that stuttered.",
        "Rewrite the caption without the repetition.",
        "Repeated words drown the others in the text encoder and take the room of what should be said.",
        "Share of pairs of neighbouring words that are repeats, from 12 words on.",
        "1,544 planted captions: at most 0.12; 'white, black' sixty times: 0.98. Provisional: no real stutter at hand.",
        column="repetition",
        limit=0.4,
    ),
    _rule(
        "boilerplate",
        "info",
        "'A photo of' repeated",
        "It says {value} times that it is a photo, picture or image of something.",
        "Rewrite the caption to say so once, or not at all.",
        "Such words take tokens and tell nothing; captioners glued together leave them behind.",
        "Counts 'photo of', 'picture of', 'image of' and the like.",
        _EXACT,
        column="picture-phrases",
        limit=1,
    ),
    _rule(
        "repeated-tags",
        "info",
        "Repeated tags",
        "It says {value} thing(s) more than once: {captions.repeated-names:.80}.",
        "Edit the caption so that each tag stands once.",
        "A tag that stands twice weighs more than its neighbours and takes tokens from them.",
        "Pieces between commas are compared without case, underscores, plurals and order of words.",
        _EXACT,
        repair="tidy-caption",
    ),
    _rule(
        "stray-separators",
        "info",
        "Stray separators",
        "{value} of its commas part nothing.",
        "Edit the caption so that commas stand between tags only.",
        "Each comma is a token; empty tags are shuffled and dropped like real ones by trainers that do so.",
        "Counts doubled, leading and trailing commas, and full stops before a comma. Sentences are judged only for "
        "doubled commas.",
        _EXACT,
        repair="tidy-caption",
    ),
    _rule(
        "damaged",
        "warning",
        "Caption damaged",
        "The text is damaged: {captions.damage}.",
        "Rewrite the caption in plain UTF-8 text without markup.",
        "Wrecked letters and markup are tokens too: they are learned as part of the concept, in the place of words.",
        "Encoding damage by ftfy, which reads the bytes again; HTML by its entities and tags; control and zero-width "
        "characters by their numbers. A single accented letter that is legal both ways is missed.",
        "1,544 planted captions and 187 captions and tags in the wild: 0 false alarms. Hits on made damage only.",
        side="is",
        limit=True,
        source="ftfy, doi:10.5281/zenodo.2591652",
        repair="tidy-caption",
    ),
    _rule(
        "says-nothing",
        "info",
        "Caption says nothing",
        "Besides placeholders and words such as 'a photo of' the caption names nothing.",
        "Rewrite the caption so that it says what is in the picture, or leave all of the concept to a template.",
        "Everything in the picture is then learned as part of the concept.",
        "No word is left without function words, words for pictures and placeholders. Silent when all captions of the "
        "concept are so, as templates are.",
        _EXACT,
        side="is",
        limit=True,
    ),
    _rule(
        "contradiction",
        "warning",
        "Captions contradict",
        "It says of the concept what its other captions deny ({captions.contradicts}).",
        "Rewrite the caption to agree with the others, or move the image to a concept of its own.",
        "One token cannot be red and blue: what contradicts is learned as a blur of both, or ignored.",
        "The colour that the first phrase gives its object, hair, eyes, fur, and marks such as glasses, where two "
        "thirds of the captions agree. Which of the two is true of the picture is not looked at.",
        "23 planted wrong colours in 23 subjects: 19 found, the 4 others name a colour where the rest name none; 0 "
        "false alarms on 1,441 images. Tuned and counted on the same sets.",
        side="is",
        limit=True,
    ),
    _rule(
        "identical",
        "info",
        "Same words, other picture",
        "The same description stands beside {value} other image(s) of the concept.",
        "Rewrite the caption so that it tells this picture from the others, unless they are copies.",
        "What differs between the pictures is in no word, so it is learned as part of the concept.",
        "Captions of at least 4 details are compared word for word between files of different content. Silent when "
        "half of the concept's captions are shared: they then name the subject, by design.",
        _EXACT,
    ),
    _rule(
        "placeholder-missing",
        "warning",
        "Placeholder missing",
        'It lacks "{captions.placeholder}", which other captions of its concept hold: it trains nothing.',
        "Edit the caption so that it holds the placeholder.",
        "The new token learns only from captions that hold it; the others train the base model's words instead.",
        "Placeholders by convention (<my-cat>, [V], sks, ohwx) in a fifth of the concept's captions or more; fires "
        "where none is. A trigger word of another kind is not recognised.",
        _EXACT,
        side="is",
        limit=True,
        source="sd-scripts, textual inversion (a caption without the token string trains nothing)",
        repair="insert-trigger",
    ),
    _rule(
        "placeholder-doubled",
        "warning",
        "Placeholder doubled",
        'It holds "{captions.placeholder}" {value} times.',
        "Edit the caption so that the placeholder stands once.",
        "Every occurrence gets a gradient, and with several vectors per token a second one costs as many tokens again.",
        "Counts the concept's placeholder in the caption.",
        _EXACT,
        limit=1,
        column="placeholders",
        repair="tidy-caption",
    ),
    _rule(
        "never-varying",
        "info",
        "Tags that never vary",
        "{value} tag(s) stand in every caption of this concept: {captions.never-varying-names:.120}.",
        "Look at these tags: drop those that belong to the concept, and check that the others are true of every image.",
        "A tag that always stands beside the trigger word is swallowed by it: the concept cannot be drawn without it, "
        "or the tag carries the concept. Whether it is a habit of the captions or a fact of the images decides between "
        "opposite repairs, and cannot be told from captions alone.",
        "Tags in all captions of a concept that is captioned with tags, from 8 captions on; placeholders left out.",
        "provisional",
        scope="concept",
    ),
)
