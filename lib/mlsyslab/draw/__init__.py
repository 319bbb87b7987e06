"""Pictures of what ranks do, and widgets to step through them."""

from mlsyslab.draw.picture import Picture
from mlsyslab.draw.timeline import timeline
from mlsyslab.draw.widgets import choose, explore, stepper

__all__ = ["Picture", "choose", "explore", "stepper", "timeline"]
