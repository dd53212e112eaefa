"""The scripts: each is one atomic step of the admission protocol. Every one may be repeated with its arguments."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Script:
    """A script with its prelude, and the digest that Redis knows it by."""

    name: str
    source: str
    sha: str


def _load(name: str) -> Script:
    folder = files(__name__)
    source = folder.joinpath("prelude.lua").read_text("utf-8") + folder.joinpath(f"{name}.lua").read_text("utf-8")
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


ADMIT = _load("admit")
RENEW = _load("renew")
FINISH = _load("finish")
LOCATE = _load("locate")
CANCEL = _load("cancel")
CLAIM = _load("claim")
DUE = _load("due")
MARK_STARTED = _load("mark_started")
PARK = _load("park")
ACTIVITY = _load("activity")
NOTE_STOP = _load("note_stop")
TELL = _load("tell")

ALL = (ADMIT, RENEW, FINISH, LOCATE, CANCEL, CLAIM, DUE, MARK_STARTED, PARK, ACTIVITY, NOTE_STOP, TELL)
