"""The questions that wait for their turn: so many at most, and of each client fewer."""

from collections import deque

from service.door.problems import Refusal, not_now
from service.predictions.question import Question

MOST_WAITING = 32
MOST_WAITING_A_CLIENT = 16
_RETRY_SECONDS = 2


class WaitingLine:
    """First come, first served. Not safe to use from several threads."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: deque[Question] = deque()

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def join(self, question: Question) -> None:
        """Wait behind all others.

        Raises:
            Refusal: 429 where the client has enough waiting already, 503 where all have.
        """
        own = sum(one.client_id == question.client_id for one in self._waiting)
        if own >= MOST_WAITING_A_CLIENT:
            raise Refusal(
                429,
                f"expected at most {MOST_WAITING_A_CLIENT} predictions of one client to wait, "
                "found as many; ask again when some are answered, or many inputs in one request",
                headers={"Retry-After": str(_RETRY_SECONDS)},
            )
        if len(self._waiting) >= MOST_WAITING:
            raise not_now(
                f"expected at most {MOST_WAITING} predictions to wait, found as many; ask again",
                _RETRY_SECONDS,
            )
        self._waiting.append(question)

    def leave(self, question: Question) -> None:
        """Don't wait any longer; nothing happens if its turn has come."""
        if question in self._waiting:
            self._waiting.remove(question)

    def take(self) -> Question:
        """Whose turn it is."""
        return self._waiting.popleft()

    def take_all(self) -> list[Question]:
        """Everybody, in order."""
        everybody = list(self._waiting)
        self._waiting.clear()
        return everybody
