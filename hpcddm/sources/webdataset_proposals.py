"""Tars as `hpcddm data` meets them: what the members of their samples are, and which tars are held out."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from glob import escape
from itertools import islice
from pathlib import Path

from hpcddm.config.sources import HELDOUT_SHARE
from hpcddm.data.open_files import open_file
from hpcddm.data.tars.tar_headers import COMPRESSED_TAR, TarHeaders
from hpcddm.data.tars.tar_layout import IMAGES, TarLayout, ValueLocation
from hpcddm.errors import UserError
from hpcddm.runs.passed_over import count_items, count_lines
from hpcddm.sources.folders.proposal import SamplePicture, SourceProposal, heldout_share
from hpcddm.sources.folders.survey import FolderSurvey
from hpcddm.sources.huggingface_files import SPLITS, split_in_path
from hpcddm.sources.source_files import IndexedFile, lacking, valued
from hpcddm.sources.tars.existing_tars import SourceTar

TARS_READ = 4
"""Tars whose members are all listed."""
MEMBERS_COUNTED = 3000
"""Members whose extensions are counted in a tar without samples."""
MAX_SIZES = 1000
"""Tars whose sizes are read, about."""
SAMPLES = 50
"""Samples of each of these tars whose pictures are looked at."""
MAX_LINES = 3
"""Reasons that are named why members are passed over."""
ENTRIES = ("caption", "text", "prompt")
"""Usual entries of captions in JSON objects."""


def propose(survey: FolderSurvey) -> list[SourceProposal]:
    """Propose how to read the tars of a folder; several proposals where a sample has several images."""
    compressed = [
        path for path in survey.paths((".gz", ".bz2", ".xz", ".zst", ".tgz")) if COMPRESSED_TAR.search(path.name)
    ]
    tars = [path for path in survey.paths((".tar",)) if path.suffix == ".tar"]
    proposal = SourceProposal("tars of samples, as WebDataset and img2dataset have them", {"folder": str(survey.root)})
    if compressed and not tars:
        advice = "decompress the tars if they hold samples, or unpack them if they hold folders of images"
        proposal.error = f"{compressed[0]} is compressed; {advice}"
        return [proposal]
    if not tars:
        return []
    if survey.only is not None:
        proposal.source["tars"] = escape(survey.only)
    elif compressed:
        proposal.remarks.append(f"not used: {len(compressed):,} compressed tars, such as {compressed[0].name}")
        # The default refuses compressed tars, a pattern does not.
        proposal.source["tars"] = "**/?*.tar"
    return _with_images(proposal, survey, tars)


def _with_images(whole: SourceProposal, survey: FolderSurvey, tars: Sequence[Path]) -> list[SourceProposal]:
    """Return the proposal, or one for each member that may be the image if a sample has several."""
    tried = []
    for image in [None, *_image_extensions(tars[0])]:
        source = whole.source | ({} if image is None else {"image": [image]})
        proposal = replace(whole, source=source, remarks=list(whole.remarks))
        with proposal.keep_error():
            _describe(proposal, survey, tars, TarLayout(frozenset([image]) if image else IMAGES))
            if image is None:
                return [proposal]
        tried.append(proposal)
    return [proposal for proposal in tried if proposal.error is None] or tried[:1]


def _image_extensions(tar: Path) -> list[str]:
    """List the extensions of images in a tar, most frequent first; empty for a tar that cannot be read."""
    counts: Counter[str] = Counter()
    try:
        with TarHeaders(tar, require_end=False) as members:
            for member in islice(members, MEMBERS_COUNTED):
                name = os.path.basename(str(member.name)).lower()
                counts[name.partition(".")[2]] += 1
    except UserError:
        return []
    return [extension for extension, _ in counts.most_common() if extension.rpartition(".")[2] in IMAGES]


def _describe(proposal: SourceProposal, survey: FolderSurvey, tars: Sequence[Path], layout: TarLayout) -> None:
    """Index some tars, and add numbers, classes, captions and pictures to a proposal."""
    used = _choose_tars(proposal, survey.root, tars)
    chosen = used[:: max(-(-len(used) // TARS_READ), 1)]
    opened = [_tar(path, survey.root, layout) for path in chosen]
    indices = [tar.index() for tar in opened]
    if not any(one.index.keys for one in indices):
        reason = next((f"{key}: {text}" for one in indices for key, text in one.broken), "no image in it")
        raise UserError(f"{chosen[0]}: no samples with an image; {reason}")
    samples = sum(len(one.index.keys) for one in indices)
    proposal.images = max(round(samples * _bytes(used) / _bytes(chosen)), 1)
    proposal.is_exact = len(chosen) == len(used)
    if "heldout" not in proposal.source:
        proposal.source["heldout"] = {"share": heldout_share(proposal.images)}
    _add_captions(proposal, indices, layout, chosen[0])
    _add_classes(proposal, indices)
    keys = [key for one in indices for key in one.index.keys]
    if len(set(keys)) < len(keys):
        proposal.source["prefix_keys"] = True
        proposal.remarks.append("several tars have the same keys: the name of the tar is put before each (prefix_keys)")
    values = {name for one in indices for name in valued(one.index)}
    lost = [(key, why) for one in indices if (why := lacking(one.index, values)) for key in one.index.keys]
    broken = [*(pair for one in indices for pair in one.broken), *lost]
    if broken:
        proposal.remarks.append(f"{len(broken):,} samples cannot be used, such as {broken[0][0]}: {broken[0][1]}")
    items = count_items(item for one in indices for item in one.passed_over)
    proposal.remarks += [f"members passed over: {line}" for line in count_lines(items)[:MAX_LINES]]
    proposal.pictures = _pictures(indices, opened)


def _bytes(tars: Sequence[Path]) -> float:
    """Return the size of tars in bytes; of very many, an estimate from some."""
    some = tars[:: max(len(tars) // MAX_SIZES, 1)]
    return sum(path.stat().st_size for path in some) * len(tars) / len(some)


def _tar(path: Path, root: Path, layout: TarLayout) -> SourceTar:
    return SourceTar(path, "", lambda key: True, False, root, None, layout)


def _choose_tars(proposal: SourceProposal, root: Path, tars: Sequence[Path]) -> list[Path]:
    """Add the key of the held-out tars if their names tell them; return the tars that are read."""
    of_split: dict[str | None, list[Path]] = {}
    for path in tars:
        of_split.setdefault(split_in_path(path.relative_to(root)), []).append(path)
    heldout = next((name for name in ("validation", "test") if name in of_split), None)
    pattern = None if heldout is None else _pattern(of_split[heldout], tars, root)
    if pattern is None or len(of_split) < 2:
        return list(tars)
    proposal.source["heldout"] = {"tars": pattern}
    train = _pattern(of_split.get("train", []), tars, root)
    if len(of_split) == 2 or train is None:
        return list(tars)
    proposal.source["tars"] = train
    other = next(paths[0] for name, paths in of_split.items() if name not in (heldout, "train"))
    proposal.remarks.append(f"tars of other splits, such as {other.relative_to(root)}, are not used")
    return sorted(of_split["train"] + of_split[heldout])


def _pattern(chosen: Sequence[Path], tars: Sequence[Path], root: Path) -> str | None:
    """Return a pattern that fits some tars and none of the others; None without one."""
    names = {path.relative_to(root).parts[0] for path in chosen if path.parent != root}
    fitting = {
        f"{name}/**/*.tar": [path for path in tars if path.is_relative_to(root / name)] for name in sorted(names)
    }
    fitting |= {f"**/*{word}*.tar": [path for path in tars if word in path.name] for word in SPLITS}
    return next((pattern for pattern, paths in fitting.items() if paths and paths == list(chosen)), None)


def _add_captions(proposal: SourceProposal, indices: Sequence[IndexedFile], layout: TarLayout, tar: Path) -> None:
    """Add the place of the captions: a member of each sample, or an entry of its JSON object."""
    captions = [text for one in indices for text in one.index.captions or ()]
    if captions:
        proposal.captions, proposal.example = f"the member {layout.caption and layout.caption.extension}", captions[0]
        return
    entries = indices[0].entries
    entry = next((name for name in ENTRIES if name in entries), None)
    if entry is not None:
        proposal.source["caption"] = f"json:{entry}"
        read = _tar(tar, tar.parent, TarLayout(layout.images, layout.label, ValueLocation("json", entry))).index()
        proposal.captions = f"the entry {entry} of each JSON object"
        proposal.example = next(iter(read.index.captions or ()), "")


def _add_classes(proposal: SourceProposal, indices: Sequence[IndexedFile]) -> None:
    """Add the classes of the tars that were read; there may be more."""
    counts: Counter[int] = Counter()
    for one in indices:
        counts.update([] if one.index.labels is None else one.index.labels.tolist())
    if not counts:
        return
    count = max(counts) + 1
    proposal.class_names = [str(number) for number in range(count)]
    share = proposal.source["heldout"].get("share", HELDOUT_SHARE)
    scale = (proposal.images or 1) / counts.total()
    proposal.heldout_of_class = int(scale * share * min(counts[number] for number in range(count)))
    if not proposal.is_exact:
        proposal.remarks.append(f"the classes are those in {len(indices)} tars; correct num_classes if there are more")


def _pictures(indices: Sequence[IndexedFile], tars: Sequence[SourceTar]) -> Iterator[SamplePicture]:
    """Read the first pictures of some tars."""
    for one, tar in zip(indices, tars, strict=True):
        file = open_file(tar.path, tar.entry())
        for row in range(min(len(one.index.keys), SAMPLES)):
            name = f"{tar.path.name}: {one.index.keys[row]}"
            yield SamplePicture(name, file.content(int(one.index.offsets[row]), int(one.index.sizes[row])))
