"""Submissions that try to get what they haven't earned, and honest ones that look odd; each with the outcome it must have.

A file a kind of attack; `honest` for those that mean well. `lab` is the source of the small lab that they hand in.
"""

from pathlib import Path

from . import bombs, comparing, ends, files, honestly, pages, reading, scores, shadows, writing  # noqa: F401  they register
from .case import ADVERSARIAL, EXERCISES, HONEST_BUT_ODD, LAB, Case

SOURCE = Path(__file__).with_name("lab.py")

__all__ = ["ADVERSARIAL", "EXERCISES", "HONEST_BUT_ODD", "LAB", "SOURCE", "Case"]
