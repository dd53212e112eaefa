"""The answers that the model server of the bench gives: known to both sides, so that a reader can be checked."""

from itertools import cycle, islice

_PROSE = """
The queue is kept in one place, so a request that arrives while another one runs waits for its turn [see the log].

1. **Admission** decides who may run, and when.
2. The *engine* asks the model, runs its calls and writes down what happened.

```python
def area(width: float, height: float) -> float:
    return width * height if width > 0 else 0.0
```

每个群聊同时只有一个任务在运行。 Everything else is a question of how often the card may be edited - and by whom.

"""
_SIZES = (4, 5, 3, 6, 1, 7, 4, 2, 9, 4)
"""Characters per delta: about what tokenisers make of such a text."""


def answer_pieces(number: int, deltas: int) -> list[str]:
    """The deltas of one answer. The first names its number, so that two answers cannot be mistaken."""
    pieces = [f"Answer {number}. "]
    letters = cycle(_PROSE)
    sizes = cycle(_SIZES)
    while len(pieces) < deltas:
        piece = "".join(islice(letters, next(sizes)))
        # An open bracket at the end may begin a tool call, so it is shown only with what follows: one delta less.
        pieces.append(piece + next(letters) if piece.endswith(("[", "<")) else piece)
    return pieces


def question(number: int, deltas: int) -> str:
    """What is asked to get that answer."""
    return f"answer {number} in {deltas} deltas"


def asked_for(text: str) -> tuple[int, int]:
    """Number and deltas of the answer that a question asks for."""
    words = text.split()
    return int(words[1]), int(words[3])
