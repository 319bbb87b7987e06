"""The pictures of the chapter on MFU: rooflines, utilizations with their factors, the ladder."""

from mlsyslab.draw.ladder import ladder, of_record
from mlsyslab.draw.roofline import roofs, shapes, shares, under_roof
from mlsyslab.draw.utilization import calculator

__all__ = ["calculator", "ladder", "of_record", "roofs", "shapes", "shares", "under_roof"]
