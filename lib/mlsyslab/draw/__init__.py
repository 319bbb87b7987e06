"""Pictures of what ranks do, and widgets to step through them."""

from mlsyslab.draw.picture import Picture
from mlsyslab.draw.sharding import Matrix, sharding
from mlsyslab.draw.timeline import timeline
from mlsyslab.draw.widgets import choose, explore, stepper

__all__ = ["Matrix", "Picture", "choose", "explore", "sharding", "stepper", "timeline"]
