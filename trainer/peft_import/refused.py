"""What keeps an adapter from being imported."""


class ImportRefusedError(ValueError):
    """It can't be a version of this adapter; one sentence with expected, found and remedy.

    ``conflict``: the files are good, but of another base model or another kind of adapter.
    """

    def __init__(self, message: str, *, conflict: bool = False) -> None:
        """Say so."""
        super().__init__(message)
        self.conflict = conflict
