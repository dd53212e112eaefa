"""From the bytes of a web page to text, by the names of character sets that browsers know."""

import re
from typing import Final

# What servers write, and what browsers take it for. Only text encodings: Python's list has others under the same names.
_CODECS: Final = {
    "utf-8": "utf-8", "utf8": "utf-8", "us-ascii": "cp1252", "ascii": "cp1252",
    "iso-8859-1": "cp1252", "latin1": "cp1252", "windows-1252": "cp1252", "iso-8859-15": "iso-8859-15",
    "iso-8859-2": "iso-8859-2", "windows-1250": "cp1250", "windows-1251": "cp1251", "windows-1253": "cp1253",
    "windows-1254": "cp1254", "windows-1255": "cp1255", "windows-1256": "cp1256", "koi8-r": "koi8-r",
    "gb2312": "gb18030", "gbk": "gb18030", "gb18030": "gb18030", "big5": "big5hkscs",
    "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "euc-jp": "euc_jp", "iso-2022-jp": "iso2022_jp",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "utf-16": "utf-16", "utf-16le": "utf-16-le", "utf-16be": "utf-16-be",
}  # fmt: skip
_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_META: Final = re.compile(
    rb"""<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}["']?\s{0,9}([a-zA-Z0-9_-]{1,40})""", re.IGNORECASE
)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff]")


def decoded(data: bytes, declared: str | None, *, is_html: bool) -> str:
    """The text: by its byte order mark, the declared charset, a `<meta>` of the page, or else UTF-8.

    Never raises: what does not fit becomes a replacement character. Control characters are dropped, but not line
    breaks and tabs.
    """
    codec = next((codec for mark, codec in _MARKS if data.startswith(mark)), None)
    if codec is None and declared is not None:
        codec = _CODECS.get(declared.strip().strip("\"'").lower())
    if codec is None and is_html and (meta := _META.search(data[:2048])):
        codec = _CODECS.get(meta[1].decode().lower())
    text = data.decode(codec or "utf-8", errors="replace")
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
