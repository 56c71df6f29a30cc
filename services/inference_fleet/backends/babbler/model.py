"""A trained model as one value, and its place on disk: trained when first wanted, read back after that."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Self

import msgspec

from inference_fleet.backends.babbler.ngram import Counts, Ngram
from inference_fleet.backends.babbler.vocabulary import Vocabulary

_log = logging.getLogger("blackstart.babbler")
_FORMAT = 1
_DIGEST_LENGTH = 64
_COMMON = 64
_LARGEST = 64 * 1024 * 1024


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What a cache file holds behind its checksum."""

    tokens: tuple[str, ...]
    counts: Counts


@dataclass(frozen=True)
class Model:
    """A vocabulary and the counts over it."""

    fingerprint: str
    vocabulary: Vocabulary
    counts: Counts

    @classmethod
    def train(cls, text: str) -> Self:
        """Learn a text; the same text gives the same model everywhere."""
        vocabulary = Vocabulary.learn(text)
        counts = Counts.of(vocabulary.encode(text), size=len(vocabulary))
        return cls(fingerprint(text), vocabulary, counts)

    @cached_property
    def ngram(self) -> Ngram:
        """The probabilities; worked out from the counts once."""
        return Ngram(self.counts)

    @cached_property
    def common(self) -> frozenset[int]:
        """The tokens too frequent to say what a text is about, and the single characters."""
        frequent = sorted(self.counts.unigrams, key=lambda number: (-self.counts.unigrams[number], number))
        letters = (number for number, token in enumerate(self.vocabulary.tokens) if len(token.strip()) < 2)
        return frozenset((*frequent[:_COMMON], *letters))


def corpus() -> str:
    """The text that ships."""
    return resources.files(__package__).joinpath("corpus.txt").read_text(encoding="utf-8")


def fingerprint(text: str) -> str:
    """What a model of this text is called: a changed text is another model."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load(text: str, folder: Path) -> Model:
    """The model of a text: from `folder` when it lies there unharmed, else trained now and kept there.

    A folder that cannot be written costs the next start a training, so it is said and not fatal.
    """
    path = folder / f"babbler-{fingerprint(text)}-v{_FORMAT}.model"
    model = _read(path, text)
    if model is None:
        model = Model.train(text)
        _write(path, model)
    return model


def _read(path: Path, text: str) -> Model | None:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("%s cannot be read (%s); training anew", path, error)
        return None
    digest, payload = content[:_DIGEST_LENGTH], content[_DIGEST_LENGTH:]
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        _log.warning("%s does not match its checksum; training anew", path)
        return None
    try:
        stored = msgspec.msgpack.decode(payload, type=Stored)
    except msgspec.DecodeError as error:
        _log.warning("%s is no model of this version (%s); training anew", path, error)
        return None
    return Model(fingerprint(text), Vocabulary(stored.tokens), stored.counts)


def _write(path: Path, model: Model) -> None:
    payload = msgspec.msgpack.encode(Stored(tokens=model.vocabulary.tokens, counts=model.counts))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".draft")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).hexdigest().encode() + payload)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        _log.warning("%s cannot be written (%s); the next start trains again", path, error)
