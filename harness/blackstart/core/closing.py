"""What is closed at the end of a `with`, however the block ended: one wording for all that hold something open."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Closing(ABC):
    """Base of what has a `close`, which is fine a second time: whoever closed it inside the block has no trouble after it."""

    def __enter__(self) -> Self:
        """Itself: it is open since it was made."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @abstractmethod
    def close(self) -> object:
        """Let go of what it holds."""
