"""The papers' figures and tables as named studies: `find("dana2025/fig1a")`, `all_studies()`."""

from byheart.papers.registry import all_studies, find, reproduce

__all__ = ["all_studies", "find", "reproduce"]
