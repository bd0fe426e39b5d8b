"""The collection `emoji`: drawings of ten sets in Iconify JSON, and Unicode's names and keywords in English.

The default sets are under Apache-2.0 and MIT. Licences are those that the packages state, and of fxemoji, whose package
states that of the code, that of the drawings: https://github.com/mozilla/fxemoji/blob/gh-pages/LICENSE.md.
"""

from hpcddm.fetched.packages import Collection, Package

ICON_FILES = ("icons.json", "metadata.json", "chars.json", "info.json")
"""Drawings; categories; code points; who made them."""


def _icons(folder: str, version: str, sha256: str, author: str, licence: str, upstream: str, note: str = "") -> Package:
    name, files = f"@iconify-json/{folder}", tuple(f"package/{file}" for file in ICON_FILES)
    return Package(name, version, sha256, folder, files, author, licence, f"https://github.com/{upstream}", note)


SETS = (
    _icons(
        "noto",
        "1.2.9",
        "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad",
        "Google LLC",
        "Apache-2.0",
        "googlefonts/noto-emoji",
    ),
    _icons(
        "noto-v1",
        "1.2.5",
        "2bf62c26c2c2884aa99e90aec942cdaee17a5921f05690694f4978ad4b017c37",
        "Google LLC",
        "Apache-2.0",
        "googlefonts/noto-emoji",
    ),
    _icons(
        "fluent-emoji",
        "1.2.7",
        "8044210dbf11e016d4de85f15d01a243423bd832457e7e2491df1b751c0e272b",
        "Microsoft Corporation",
        "MIT",
        "microsoft/fluentui-emoji",
    ),
    _icons(
        "fluent-emoji-flat",
        "1.2.6",
        "7d064769dee690815f823bc5bcc511d957198caf9f5edd8dd9c1aa48a6aeb175",
        "Microsoft Corporation",
        "MIT",
        "microsoft/fluentui-emoji",
    ),
    _icons(
        "openmoji",
        "1.2.29",
        "03181e2c156cab35cf4a62f1f7886bd971d59212e75ac3f189d5a4cae3930fc5",
        "OpenMoji",
        "CC-BY-SA-4.0",
        "hfg-gmuend/openmoji",
        "The code of the project, of which nothing is fetched, is under another licence.",
    ),
    _icons(
        "twemoji",
        "1.2.5",
        "19046dff7d8707ce96212ec86468b36ac5f8e60409629dd13f809265c6d0ebb7",
        "Twitter, Inc and other contributors",
        "CC-BY-4.0",
        "jdecked/twemoji",
    ),
    _icons(
        "emojione",
        "1.2.3",
        "26a14f44284407e8bcde91799388dca2bfd91dbcd55a97f425524a1c5b73610e",
        "Emoji One",
        "CC-BY-4.0",
        "EmojiTwo/emojitwo",
        "Drawings of EmojiOne 2.3; the project that the package names carries them on, and states CC-BY-4.0 for them.",
    ),
    _icons(
        "emojione-v1",
        "1.2.3",
        "6641d59d48a42823fdc2b84e7427e9f302944eb98d2c7d94d6e67c139e7b37b3",
        "Emoji One",
        "CC-BY-SA-4.0",
        "joypixels/emojione-legacy",
        "The licence is known from the package only.",
    ),
    _icons(
        "fxemoji",
        "1.2.2",
        "f3e72b3c59d05e1db03b7e308d55c0d05bd7ba3f625a90da1b79313c12858eef",
        "Mozilla Foundation",
        "CC-BY-4.0",
        "mozilla/fxemoji",
        "The package states Apache-2.0; upstream, that is the licence of the code, and CC-BY-4.0 that of the drawings.",
    ),
    _icons(
        "streamline-emojis",
        "1.2.4",
        "5dac87c876b322500989828c5823143e0100d78881627a2e4081a4b897cbfdbc",
        "Streamline",
        "CC-BY-4.0",
        "webalys-hq/streamline-vectors",
        "The licence is known from the package only.",
    ),
)
NAMES = Package(
    "emojibase-data",
    "17.0.0",
    "d01d0e2ca4e22cb402679532155342c71e2e871f25c32223c013b8b166ebdf5a",
    "emojibase",
    ("package/en/data.json", "package/en/messages.json", "package/LICENSE"),
    "Miles Johnson",
    "MIT",
    "https://github.com/milesj/emojibase",
    "A table of names and keywords, after the data of Unicode, Inc.",
)
EMOJI = Collection("emoji", (NAMES,), SETS, ("noto", "noto-v1", "fluent-emoji", "fluent-emoji-flat"))
