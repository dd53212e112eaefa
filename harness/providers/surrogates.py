r"""Characters outside the basic plane that a server cut in two: `\ud83d` in one chunk, `\ude00` in the next."""

import re

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


class SurrogateJoiner:
    """Joins the halves over chunk borders; a half that stays alone becomes the replacement character."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """The text that is whole by now."""
        text = self._held + text
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return self.clean(text)

    def close(self) -> str:
        """What was held back, now that nothing more comes."""
        held, self._held = self._held, ""
        return self.clean(held)

    def clean(self, text: str) -> str:
        """The same text with whole characters only."""
        joined = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
        return _LONE.sub(_REPLACEMENT, joined)
